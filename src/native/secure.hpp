// Secure releases: noise from words of the cipher, exact sums, and one correct rounding.
//
// No bit of a release depends on the instruction set or on the number of threads: noise is within
// its error bound, and what that leaves open is decided by ball arithmetic in Python; sums are of
// numbers on public grids, on which float64 makes no error in any order; slopes, clips and
// truncations are those of `secure.sums`, rounded as in NumPy.
#pragma once
#include "gradient.hpp"

namespace sottovoce {
namespace {

constexpr double TURN = 6.283185307179586476925 * 0x1p-48;
constexpr u64 NEAR_ONE_64 = 0xB504F333F9DE6800;  // from this word on 1 - u is taken
constexpr u64 FEW_64 = 1 << 24, LAST_64 = ~u64(0);
constexpr double LARGEST = 0x1p800, HUGE_SIZE = 0x1p1000, EXACT = 0x1p53;
constexpr double SHORTER = 1.0 - 0x1p-30, LESS = 1.0 - 0x1p-28;
constexpr int MODEL_BITS = 32, TINIEST = -500, PERSON_BITS = 50;

// --- noise

INLINE void add_products(double* RESTRICT out, const double* RESTRICT a, const double* RESTRICT b,
                         i64 count) {
  for (i64 j = 0; j < count; j++) out[j] += a[j] * b[j];
}

// -2 ln u, NaN where the bits do not show enough. ln(1 + f) = 2 artanh(f/(2 + f)) by nine terms of
// its series, |f/(2 + f)| <= 0.172: to 2^-50.
INLINE double minus_two_log_64(u64 first, u64 finer, u64 top, double unit) {
  const bool near = first >= NEAR_ONE_64;
  const u64 low = near ? ~first : first, more = near ? top - finer : finer;
  const double u = (double(low) + (double(more) + 0.5) * unit) * 0x1p-64;
  const i64 bits = bits_of<i64>(u), exponent = (bits - 0x3FE6A09E667F3BCD) >> 52;
  const double mantissa =
      bits_of<double>(bits - i64(u64(exponent) << 52));  // in [sqrt(1/2), sqrt(2))
  const double f = near ? -u : mantissa - 1.0, octaves = near ? 0.0 : double(exponent);
  const double s = f / (2.0 + f), z = s * s;
  double p = -4.0 / 17;
  p = p * z - 4.0 / 15;
  p = p * z - 4.0 / 13;
  p = p * z - 4.0 / 11;
  p = p * z - 4.0 / 9;
  p = p * z - 4.0 / 7;
  p = p * z - 4.0 / 5;
  p = p * z - 4.0 / 3;
  p = p * z - 4.0;
  const double size = p * s - 1.386294361119890618834464 * octaves;
  return (first < FEW_64) | (first == LAST_64) ? double(NAN) : size;
}

// Cosine and sine of the angle in the upper 48 bits.
INLINE void direction_64(u64 word, double& x, double& y) {
  const i64 place = i64(word >> 16), quarter = (place + (i64(1) << 45)) >> 46;
  const double angle = (double(place - quarter * (i64(1) << 46)) + 0.5) * TURN, q = angle * angle;
  double s = -1.0 / 1307674368000.0, c = -1.0 / 87178291200.0;
  s = s * q + 1.0 / 6227020800.0, c = c * q + 1.0 / 479001600.0;
  s = s * q - 1.0 / 39916800.0, c = c * q - 1.0 / 3628800.0;
  s = s * q + 1.0 / 362880.0, c = c * q + 1.0 / 40320.0;
  s = s * q - 1.0 / 5040.0, c = c * q - 1.0 / 720.0;
  s = s * q + 1.0 / 120.0, c = c * q + 1.0 / 24.0;
  s = s * q - 1.0 / 6.0, c = c * q - 0.5;
  s = s * q + 1.0, c = c * q + 1.0;
  s *= angle;
  const bool odd = (quarter & 1) != 0;
  const double a = odd ? s : c, b = odd ? c : s;
  x = ((quarter + 1) & 2) != 0 ? -a : a;
  y = (quarter & 2) != 0 ? -b : b;
}

// Adds normals to rows of `out`: words 2j and 2j + 1 to coordinates first + j and ceil(m/2) + first
// + j. The last one of an odd number of coordinates has no sine.
inline void add_gaussian(const u64* words, i64 count, const double* scales, const i64* rows,
                         i64 releases, i64 first, double* out, i64 m) {
  alignas(64) double radius[BLOCK], x[BLOCK], y[BLOCK];
  const i64 half = (m + 1) / 2;
  for (i64 i = 0; i < releases; i++)
    for (i64 done = 0; done < count; done += BLOCK) {
      const i64 size = count - done < BLOCK ? count - done : BLOCK, rest = m - half - first - done;
      const u64* RESTRICT w = words + 2 * (i * count + done);
      double* cosine = out + rows[i] * m + first + done;
      for (i64 j = 0; j < size; j++)
        radius[j] = scales[i] *
                    std::sqrt(minus_two_log_64(w[2 * j], w[2 * j + 1] & 0xFFFF, 0xFFFF, 0x1p-16));
      for (i64 j = 0; j < size; j++) direction_64(w[2 * j + 1], x[j], y[j]);
      add_products(cosine, radius, x, size);
      add_products(cosine + half, radius, y, size < rest ? size : rest);
    }
}

// Adds Laplace noise to rows of `out`: words 2j and 2j + 1 to coordinate first + j.
inline void add_laplace(const u64* words, i64 count, const double* scales, const i64* rows,
                        i64 releases, i64 first, double* out, i64 m) {
  constexpr u64 LOW = ~u64(0) >> 1;
  for (i64 i = 0; i < releases; i++) {
    const u64* RESTRICT w = words + i * 2 * count;
    const double scale = 0.5 * scales[i];
    double* RESTRICT row = out + rows[i] * m + first;
    for (i64 j = 0; j < count; j++) {
      const double size = scale * minus_two_log_64(w[2 * j], w[2 * j + 1] & LOW, LOW, 0x1p-63);
      row[j] += w[2 * j + 1] > LOW ? -size : size;
    }
  }
}

// floor(-c ln u) of every word, at most q; -1 where that is not certain. Gives how many are not.
inline i64 poisson_gaps(const u64* words, i64 count, i64 width, const double* scales,
                        const i64* sizes, double error, u64 small, i64* gaps) {
  i64 doubts = 0;
  for (i64 i = 0; i < count; i++) {
    const u64* RESTRICT w = words + i * width;
    i64* RESTRICT found = gaps + i * width;
    const double scale = scales[i], most = double(sizes[i]);
    for (i64 j = 0; j < width; j++) {
      const double size = 0.5 * scale * minus_two_log_64(w[j], 0, 0, 1.0);
      const double down = std::floor(size), rest = size - down, doubt = error * (scale + size);
      const bool certain = (rest > doubt) & (rest < 1.0 - doubt) & (w[j] >= small);
      const double gap = certain ? down : -1.0;
      found[j] = i64(gap < most ? gap : most);
      doubts += !certain;
    }
  }
  return doubts;
}

// round(S 2^-shift + noise) g/b, as `Noise.released`, of release rows[i] in row i; NaN where it is
// uncertain. Gives how often it is.
inline i64 released_rows(const i64* sums, const i64* shifts, const double* noise,
                         const double* error, const double* grids, const i64* rows,
                         const double* over, i64 count, i64 m, double* out) {
  i64 doubts = 0;
  for (i64 i = 0; i < count; i++) {
    const i64 row = rows[i], shift = shifts[i], mask = i64((u64(1) << shift) - 1);
    const double unit = std::ldexp(1.0, int(-shift)), most = 0.5 - error[row];
    const double grid = grids[row], b = over[i], *RESTRICT own = noise + row * m;
    const i64* RESTRICT sum = sums + i * m;
    double* RESTRICT found = out + i * m;
    for (i64 j = 0; j < m; j++) {
      const double shifted = (double(sum[j] & mask) * unit + 0.5) + own[j];
      const double down = std::floor(shifted);
      const bool certain = std::fabs((shifted - down) - 0.5) < most;
      const double whole = double((sum[j] >> shift) + i64(certain ? down : 0.0));
      found[j] = certain ? whole * grid / b : double(NAN);
      doubts += !certain;
    }
  }
  return doubts;
}

// --- sums

// A model, flat, of one output or several, on its own grid as `Grids.model`; gives its largest
// weight, infinite where one is no number: then nothing is done.
inline double put_on_grid(const double* x, i64 count, i64 columns, double* out) {
  i64 bits = 0;
  for (i64 j = 0; j < count; j++) {
    const i64 mine = bits_of<i64>(x[j]) & INT64_MAX;  // sizes are in the order of their bits
    bits = mine > bits ? mine : bits;
  }
  const double largest = bits_of<double>(bits);
  if (!(largest < INF)) return INF;
  int half = 0, octave;
  while ((i64(1) << (2 * half)) < columns) half++;
  std::frexp(largest, &octave);
  octave += half - MODEL_BITS;
  octave = octave > TINIEST ? octave : TINIEST;
  const double grid = std::ldexp(1.0, octave), inverse = std::ldexp(1.0, -octave);
  for (i64 j = 0; j < count; j++) out[j] = std::trunc(x[j] * inverse) * grid;
  return largest;
}

template <class Rows>
struct ExactSums {
  const Sums& s;
  const SumsScratch& w;
  const Data& data = s.data;
  const Rows X{s.data};
  const i64 K = s.loss.outputs, m = s.m, columns = m / K;  // of one output
  const i64 stride = data.longest > s.step ? data.longest : s.step;
  i64* totals = nullptr;

  // Slopes in whole units of g_s, toward zero, each at most its row's cap, as
  // `secure.sums.truncated`.
  void truncate(i64 count) const {
    double *RESTRICT u = w.u, *RESTRICT caps = w.y;
    for (i64 e = 0; e < count; e++) caps[e] = s.caps[w.rows[e]];
    if (K == 1) {
      for (i64 e = 0; e < count; e++) {
        const double size = std::fabs(u[e]) * s.inverse, least = size < caps[e] ? size : caps[e];
        u[e] = std::fabs(u[e]) < INF ? std::copysign(std::floor(least), u[e]) : 0.0;
      }
      return;
    }
    double* RESTRICT sizes = w.sizes;
    for (i64 k = 0; k < K; k++)
      for (i64 e = 0; e < count; e++) {
        const double size = std::fabs(u[k * stride + e]), units = size * s.inverse;
        sizes[k * stride + e] = size < INF ? (units < HUGE_SIZE ? units : HUGE_SIZE) : 0.0;
      }
    double *largest = w.y + stride, *length = w.y + 2 * stride;
    lengths_of(sizes, count, K, stride, w.spare, largest, length);
    for (i64 e = 0; e < count; e++) {
      const double reach = length[e] > 1.0 ? length[e] : 1.0;
      length[e] = length[e] > caps[e] ? caps[e] / reach * SHORTER : 1.0;
    }
    for (i64 k = 0; k < K; k++)
      for (i64 e = 0; e < count; e++)
        u[k * stride + e] =
            std::copysign(std::floor(sizes[k * stride + e] * length[e]), u[k * stride + e]);
  }

  // The same of people, as `secure.sums._sum_of_people`; those who may be too long are added at
  // once.
  void truncate_people(i64 units, i64 count) const {
    double *RESTRICT u = w.u, *RESTRICT each = w.y, *RESTRICT sizes = w.sizes;
    for (i64 unit = 0; unit < units; unit++)
      for (i64 e = w.begins[unit]; e < w.begins[unit + 1]; e++)
        each[e] = double(w.begins[unit + 1] - w.begins[unit]);
    for (i64 k = 0; k < K; k++)
      for (i64 e = 0; e < count; e++) {
        double& mine = u[k * stride + e];
        mine = std::fabs(mine) < INF ? mine : 0.0;
        const double size = std::fabs(mine) * LESS / each[e] / s.slope;
        sizes[k * stride + e] = std::copysign(std::floor(size < EXACT ? size : EXACT), mine);
      }
    double *largest = w.y + stride, *length = w.y + 2 * stride;
    lengths_of(sizes, count, K, stride, w.spare, largest, length);
    for (i64 e = 0; e < count; e++) {
      const double size = std::ceil(length[e] * s.reach[w.rows[e]] * (1.0 + 0x1p-40));
      length[e] = size < EXACT ? size : EXACT;
    }
    for (i64 unit = 0; unit < units; unit++) {
      const i64 first = w.begins[unit], rows = w.begins[unit + 1] - first;
      double together = 0.0;
      for (i64 e = first; e < first + rows; e++) together += length[e];
      const bool plain = together <= s.length;
      if (!plain) add_person(first, rows);
      for (i64 k = 0; k < K; k++)
        for (i64 e = first; e < first + rows; e++)
          u[k * stride + e] = plain ? sizes[k * stride + e] : 0.0;
    }
  }

  // One person's mean, as `secure.sums._clipped_mean`: exactly summed at a scale of its own,
  // brought to L, truncated.
  void add_person(i64 first, i64 rows) const {
    double steepest = 0.0, longest = 0.0;
    int octave, reach, bits = 0;
    for (i64 k = 0; k < K; k++)
      for (i64 e = first; e < first + rows; e++) {
        const double size = std::fabs(w.u[k * stride + e]);
        steepest = size > steepest ? size : steepest;
      }
    std::frexp(steepest, &octave);
    for (i64 k = 0; k < K; k++)
      for (i64 e = first; e < first + rows; e++)
        w.u[k * stride + e] = std::ldexp(w.u[k * stride + e], -octave);
    for (i64 e = 0; e < rows; e++) {
      double largest, length;
      lengths_of(w.u + first + e, 1, K, stride, w.spare, &largest, &length);
      const double size = length * s.reach[w.rows[first + e]];
      longest = size > longest ? size : longest;
    }
    std::frexp(longest, &reach);
    while ((i64(1) << bits) < rows) bits++;
    const double scale =
        std::ldexp(1.0, PERSON_BITS - 1 - bits - reach);  // so that entries stay below 2^50
    for (i64 k = 0; k < K; k++) {
      double slopes = 0.0;
      for (i64 e = first; e < first + rows; e++) {
        const double whole = std::trunc(w.u[k * stride + e] * scale);
        X.add(w.rows[e], whole, w.near + k * columns);
        slopes += whole;
      }
      if (data.intercept != 0.0) w.near[(k + 1) * columns - 1] = data.intercept * slopes;
    }
    add_near(first, rows, std::ldexp(1.0 / (double(rows) * scale * s.slope), octave));
  }

  // Adds the vector in w.near, brought to L, to the totals, and leaves zeros.
  void add_near(i64 first, i64 rows, double mean) const {
    i64 found = 0;
    double *values = w.slopes + K, largest = 0.0;
    if (Rows::sparse) {
      for (i64 e = first; e < first + rows; e++)
        take_touched(X, w.rows[e], data.intercept, K, columns, w.near, w.places, values, found);
    } else {
      for (i64 j = 0; j < m; j++) w.places[j] = j;
      put(values, w.near, m);
      found = m;
    }
    for (i64 e = 0; e < found; e++) {
      values[e] *= s.whole;
      const double size = std::fabs(values[e]);
      largest = size > largest ? size : largest;
    }
    const double unit = largest > 0.0 ? largest : 1.0;
    for (i64 e = 0; e < found; e++) {
      const double share = values[e] / unit;
      if (share != 0.0 || !Rows::sparse) w.near[w.places[e]] = share * share;
    }
    const double length =
        unit * std::sqrt(Rows::sparse ? halved_touched(found) : halved_sum(w.near, m));
    if (!Rows::sparse) clear(w.near, m);
    if (!(length > 0.0)) return;
    const double most = s.length * SHORTER / length, factor = mean < most ? mean : most;
    for (i64 e = 0; e < found; e++) {
      double units = values[e] * factor;
      units = units > EXACT ? EXACT : units < -EXACT ? -EXACT : units;
      totals[w.places[e]] += std::fabs(units) <= EXACT ? i64(units) : 0;
    }
  }

  // The sum of w.near at the touched places by halves, as `secure.functions.halved_sum` of all m;
  // leaves zeros.
  double halved_touched(i64 found) const {
    std::memcpy(w.folded, w.places, size_t(found) * sizeof(i64));
    for (i64 left = m; left > 1; left = (left + 1) / 2) {
      const i64 half = (left + 1) / 2;
      for (i64 e = 0; e < found; e++) {
        const i64 j = w.folded[e];
        if (j < half) continue;
        w.near[j - half] += w.near[j];
        w.near[j] = 0.0;
        w.folded[e] = j - half;
      }
    }
    const double total = w.near[0];
    w.near[0] = 0.0;
    return total;
  }

  // One block: all slopes, and then the rows that pull at all.
  void add_rows(i64 units, i64 count) const {
    slopes_at(X, data, s.loss, 1.0, w.x, columns, w.rows, count, stride, w.u, w.y, w.spare);
    if (data.starts)
      truncate_people(units, count);
    else
      truncate(count);
    for (i64 k = 0; k < K; k++)
      w.slopes[k] += sum_of(w.u + k * stride, count);  // whole numbers: in any order
    const i64 found = keep_pulling(K, count, stride, w.rows, w.u);
    for (i64 k = 0; k < K; k++) X.pull(w.rows, found, w.u + k * stride, w.wide + k * columns);
  }

  // Moves the float64 sum to the whole one.
  void flush() const {
    for (i64 k = 0; k < K; k++) {
      if (data.intercept != 0.0) w.wide[(k + 1) * columns - 1] = data.intercept * w.slopes[k];
      w.slopes[k] = 0.0;
    }
    for (i64 j = 0; j < m; j++) {
      totals[j] += i64(w.wide[j] * s.whole);
      w.wide[j] = 0.0;
    }
  }

  // Adds the sum of every pair (node, round) to its row of the totals; gives the largest weight of
  // all models.
  double run() {
    double largest = 0.0;
    for (i64 p = 0; p < s.pairs; p++) {
      const double mine = put_on_grid(s.models + p * m, m, columns, w.x);
      largest = mine > largest ? mine : largest;
      if (!(largest <= LARGEST)) return largest;
      const i64* picks = s.starts[p] >= 0 ? s.picks + s.starts[p] : nullptr;
      totals = s.totals + p * m;
      i64 waiting = 0;
      in_blocks(X, data, picks, s.base[p], 0, s.sizes[p], s.step, w.rows, w.begins,
                [&](i64 units, i64 count) {
                  if (waiting + units > s.limit) flush(), waiting = 0;
                  add_rows(units, count);
                  waiting += units;
                });
      flush();
    }
    return largest;
  }
};

inline double exact_sums(Sums& sums, SumsScratch& scratch) {
  return with_rows(sums.data, [&](auto X) { return ExactSums<decltype(X)>{sums, scratch}.run(); });
}

}  // namespace
}  // namespace sottovoce
