// Products and sums of rows, dense and CSR, where they lie, in float32 or float64; all sums are
// float64.
#pragma once
#include "steps.hpp"

namespace sottovoce {
namespace {

template <class V>
struct Dense {
  static constexpr bool sparse = false;
  using Value = V;
  const V* X;
  i64 width;
  explicit Dense(const Data& data) : X(static_cast<const V*>(data.values)), width(data.features) {}
  const V* at(i64 row) const { return X + row * width; }
  // How many rows are read twice while the first of them is still in a near cache.
  i64 block(i64 most) const {
    const i64 rows = NEAR_BYTES / (width * i64(sizeof(V)) + 1);
    return rows < 4 ? 4 : rows < most ? rows : most;
  }
  double dot(i64 row, const double* RESTRICT x) const {
    const V* RESTRICT c = at(row);
    const i64 part = width / 4;
    double s = 0.0, t = 0.0, v = 0.0, w = 0.0;  // in four parts: one sum would wait for itself
#pragma omp simd reduction(+ : s, t, v, w)
    for (i64 j = 0; j < part; j++) {
      s += double(c[j]) * x[j], t += double(c[part + j]) * x[part + j];
      v += double(c[2 * part + j]) * x[2 * part + j],
          w += double(c[3 * part + j]) * x[3 * part + j];
    }
    for (i64 j = 4 * part; j < width; j++) s += double(c[j]) * x[j];
    return (s + t) + (v + w);
  }
  template <class F>
  INLINE void each(i64 row, F take) const {
    const V* RESTRICT c = at(row);
    for (i64 j = 0; j < width; j++) take(j, double(c[j]));
  }
  void add(i64 row, double weight, double* RESTRICT g) const {
    add_scaled(g, weight, at(row), width);
  }
  void dots(const i64* rows, i64 count, const double* RESTRICT x, double bias,
            double* RESTRICT u) const {
    i64 e = 0;
    for (; e + 4 <= count; e += 4) {
      const V *RESTRICT a = at(rows[e]), *RESTRICT b = at(rows[e + 1]);
      const V *RESTRICT c = at(rows[e + 2]), *RESTRICT d = at(rows[e + 3]);
      double s = 0.0, t = 0.0, v = 0.0, w = 0.0;
#pragma omp simd reduction(+ : s, t, v, w)
      for (i64 j = 0; j < width; j++) {
        s += double(a[j]) * x[j], t += double(b[j]) * x[j];
        v += double(c[j]) * x[j], w += double(d[j]) * x[j];
      }
      u[e] = bias + s, u[e + 1] = bias + t, u[e + 2] = bias + v, u[e + 3] = bias + w;
    }
    for (; e < count; e++) u[e] = bias + dot(rows[e], x);
  }
  void pull(const i64* rows, i64 count, const double* RESTRICT u, double* RESTRICT g) const {
    i64 e = 0;
    for (; e + 4 <= count; e += 4) {
      const V *RESTRICT a = at(rows[e]), *RESTRICT b = at(rows[e + 1]);
      const V *RESTRICT c = at(rows[e + 2]), *RESTRICT d = at(rows[e + 3]);
      const double s = u[e], t = u[e + 1], v = u[e + 2], w = u[e + 3];
      for (i64 j = 0; j < width; j++)
        g[j] += (s * double(a[j]) + t * double(b[j])) + (v * double(c[j]) + w * double(d[j]));
    }
    for (; e < count; e++) add(rows[e], u[e], g);
  }
  // Requests memory for rows that are drawn, which no processor expects.
  void ask_for(const i64* rows, i64 count) const {
    for (i64 e = 0; e < count; e++)
      for (i64 j = 0; j < width; j += 64 / i64(sizeof(V))) PREFETCH(at(rows[e]) + j);
  }
};

template <class V>
struct Csr {
  static constexpr bool sparse = true;
  using Value = V;
  const V* values;
  const i32* indices;
  const i64* indptr;
  explicit Csr(const Data& data)
      : values(static_cast<const V*>(data.values)), indices(data.indices), indptr(data.indptr) {}
  void ask_for(const i64*, i64) const {}
  i64 block(i64 most) const { return most; }
  double dot(i64 row, const double* RESTRICT x) const {
    double s = 0.0, t = 0.0;
    i64 at = indptr[row];
    const i64 end = indptr[row + 1];
    for (; at + 1 < end; at += 2) {  // side by side: one sum would wait for itself
      s += double(values[at]) * x[indices[at]];
      t += double(values[at + 1]) * x[indices[at + 1]];
    }
    if (at < end) s += double(values[at]) * x[indices[at]];
    return s + t;
  }
  template <class F>
  INLINE void each(i64 row, F take) const {
    for (i64 at = indptr[row]; at < indptr[row + 1]; at++) take(indices[at], double(values[at]));
  }
  void add(i64 row, double weight, double* RESTRICT g) const {
    each(row, [=](i64 j, double value) { g[j] += weight * value; });
  }
  void dots(const i64* rows, i64 count, const double* RESTRICT x, double bias,
            double* RESTRICT u) const {
    for (i64 e = 0; e < count; e++) u[e] = bias + dot(rows[e], x);
  }
  void pull(const i64* rows, i64 count, const double* RESTRICT u, double* RESTRICT g) const {
    for (i64 e = 0; e < count; e++) add(rows[e], u[e], g);
  }
};

// Calls a function with the rows of some data, whatever they are stored as.
template <class F>
inline auto with_rows(const Data& data, F function) {
  switch (data.storage) {
    case DENSE32:
      return function(Dense<float>(data));
    case DENSE64:
      return function(Dense<double>(data));
    case CSR32:
      return function(Csr<float>(data));
    default:
      return function(Csr<double>(data));
  }
}

inline i64 row_of(const Data& data, i64 place) { return data.order ? data.order[place] : place; }

}  // namespace
}  // namespace sottovoce
