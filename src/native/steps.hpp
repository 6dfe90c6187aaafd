// Eq. (6) by its kind, and the lazy sums of `algorithm.dual_averaging.LazySum`.
//
// Every Euclidean step is one map of a coordinate, x = clip(soft(-z, threshold) * scale, lo, hi),
// whose numbers depend on the round and, for the balls and the simplex, on the whole of z; the
// entropy alone needs an exponential.
#pragma once
#include "losses.hpp"

namespace sottovoce {
namespace {

constexpr double INF = HUGE_VAL;
constexpr i64 STRIP = 64;  // coordinates between two checks whether one of them needs a search

struct Map {
  double offset, threshold, scale, lo, hi;
};

INLINE double point(double z, double threshold, double scale, double lo, double hi) {
  const double below = threshold - z, above = -threshold - z;
  double x = ((below < 0.0 ? below : 0.0) + (above > 0.0 ? above : 0.0)) * scale;
  x = x < lo ? lo : x;
  return x > hi ? hi : x;
}

// total += weight * x
template <class V>
inline void add_scaled(double* RESTRICT total, double weight, const V* RESTRICT x, i64 count) {
  for (i64 j = 0; j < count; j++) total[j] += weight * double(x[j]);
}

inline void put(double* RESTRICT target, const double* RESTRICT source, i64 count) {
  std::memcpy(target, source, size_t(count) * sizeof(double));
}

inline void clear(double* target, i64 count) {
  std::memset(target, 0, size_t(count) * sizeof(double));
}

inline double square_norm(const double* z, i64 count) {
  double total = 0.0;
#pragma omp simd reduction(+ : total)
  for (i64 j = 0; j < count; j++) total += z[j] * z[j];
  return total;
}

inline double sum_of(const double* u, i64 count) {
  double total = 0.0;
#pragma omp simd reduction(+ : total)
  for (i64 e = 0; e < count; e++) total += u[e];
  return total;
}

// One variant's numbers of a job.
struct Variant {
  const Model& model;
  i64 r, m, T;
  const double *push, *a, *gamma, *s, *A, *P, *Q;
  Variant(const Job& job, i64 r) : model(job.model), r(r), m(job.m), T(job.steps.T) {
    const Steps& steps = job.steps;
    const i64 q = steps.which[r], rounds = q * T, sums = q * (T + 1);
    push = steps.push + rounds, a = steps.a + rounds, gamma = steps.gamma + rounds,
    s = steps.s + rounds;
    A = steps.A + sums, P = steps.P + sums, Q = steps.Q + sums;
  }
  double denominator(i64 at) const { return s[at] * (model.mu[r] + model.curvature) + gamma[at]; }
  bool free() const { return model.phi[r] == 0.0 && model.lo[r] == -INF && model.hi[r] == INF; }
  // Whether x(z) is a multiple of z.
  bool linear() const {
    return model.descent || model.kind == L2_BALL || (model.kind == SEPARABLE && free());
  }
};

// tau with sum (v - tau)+ = radius, v = -z * weight or |z| * weight (Michelot 1986: drop what is
// below, repeat).
inline double simplex_threshold(const double* z, i64 count, double weight, double radius,
                                bool absolute) {
  double top = -INF;
  for (i64 j = 0; j < count; j++) {
    const double v = absolute ? std::fabs(z[j]) : -z[j];
    top = v > top ? v : top;
  }
  double level = -INF;  // relative to the largest, which saves the digits of a large z
  for (i64 kept = count + 1;;) {
    double total = 0.0;
    i64 found = 0;
    for (i64 j = 0; j < count; j++) {
      const double v = ((absolute ? std::fabs(z[j]) : -z[j]) - top) * weight;
      total += v > level ? v : 0.0;
      found += v > level;
    }
    if (found >= kept || found == 0) return level + top * weight;
    kept = found, level = (total - radius) / double(found);
  }
}

// The map argmin <z, x> + s h without its quadratic + (den/2)|x|^2.
inline Map map_of(const Model& model, i64 r, double s, double den, const double* z, i64 m) {
  const double radius = model.radius[r];
  if (model.kind == SEPARABLE) return {0.0, s * model.phi[r], 1.0 / den, model.lo[r], model.hi[r]};
  if (model.kind == L2_BALL) {
    const double need = std::sqrt(square_norm(z, m)) / radius;
    return {0.0, 0.0, 1.0 / (den > need ? den : need), -INF, INF};
  }
  if (model.kind == L1_BALL) {
    double size = 0.0, threshold = 0.0;
    for (i64 j = 0; j < m; j++) size += std::fabs(z[j]);
    if (size > radius * den) threshold = simplex_threshold(z, m, 1.0 / den, radius, true) * den;
    return {0.0, threshold, 1.0 / den, -INF, INF};
  }
  return {simplex_threshold(z, m, 1.0 / den, radius, false) * den, 0.0, 1.0 / den, 0.0, INF};
}

inline void softmax_of(const double* z, double scale, double* x, i64 m) {
  double top = -INF, total = 0.0;
  for (i64 j = 0; j < m; j++) top = -z[j] > top ? -z[j] : top;
  for (i64 j = 0; j < m; j++) x[j] = exponential((-z[j] - top) * scale);
  for (i64 j = 0; j < m; j++) total += x[j];
  for (i64 j = 0; j < m; j++) x[j] /= total;
}

inline void apply(const Map& map, const double* RESTRICT z, double* RESTRICT x, i64 m) {
  if (map.threshold == 0.0 && map.lo == -INF && map.hi == INF) {
    for (i64 j = 0; j < m; j++) x[j] = -(z[j] + map.offset) * map.scale;
    return;
  }
  for (i64 j = 0; j < m; j++)
    x[j] = point(z[j] + map.offset, map.threshold, map.scale, map.lo, map.hi);
}

// x = argmin <z, x> + s h + gamma d of round at + 1; z already shifted by the center.
inline void primal(const Variant& v, i64 at, const double* z, double* x) {
  if (v.model.descent) return put(x, z, v.m);
  if (v.model.kind == ENTROPY) return softmax_of(z, 1.0 / v.gamma[at], x, v.m);
  apply(map_of(v.model, v.r, v.s[at], v.denominator(at), z, v.m), z, x, v.m);
}

// z <- prox of eta h at z, in place: the map above at -z, with s = eta and gamma = 1.
inline void shrink(const Model& model, i64 r, double eta, double* z, i64 m) {
  const double den = 1.0 + eta * model.mu[r];
  if (model.kind != SEPARABLE || model.phi[r] != 0.0 || model.lo[r] > -INF || model.hi[r] < INF) {
    for (i64 j = 0; j < m; j++) z[j] = -z[j];
    const Map map = map_of(model, r, eta, den, z, m);
    for (i64 j = 0; j < m; j++)
      z[j] = point(z[j] + map.offset, map.threshold, map.scale, map.lo, map.hi);
  } else if (den != 1.0) {
    for (i64 j = 0; j < m; j++) z[j] /= den;
  }
}

// z - gamma x0, in the spare memory where there is a center.
inline const double* shifted(const Variant& v, i64 at, const double* z, double* spare) {
  if (!v.model.centre) return z;
  for (i64 j = 0; j < v.m; j++) spare[j] = z[j] - v.gamma[at] * v.model.centre[j];
  return spare;
}

// The factor on -z in the lazy sum over the l2 ball: on the sphere while den < |z|/R.
inline double ball_weight(const Variant& v, i64 before, i64 t, double norm) {
  const double need = norm / v.model.radius[v.r];
  i64 held = t, low = before;
  while (low < held) {
    const i64 middle = (low + held) / 2;
    if (v.denominator(middle) < need)
      low = middle + 1;
    else
      held = middle;
  }
  const double sphere = held > before ? (v.A[held] - v.A[before]) / need : 0.0;
  return sphere + v.P[t] - v.P[held];
}

// The first place in before … t with s phi + bound * den >= size (> size where `beyond`).
inline i64 first_round(const Variant& v, double size, double bound, bool beyond, i64 before,
                       i64 t) {
  i64 low = before, high = t;
  while (low < high) {
    const i64 middle = (low + high) / 2;
    const double level = v.s[middle] * v.model.phi[v.r] + bound * v.denominator(middle);
    if (level < size || (beyond && level == size))
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

// Sum of a x(z, tau) over rounds before + 1 … t for one coordinate, as `LazySum._separable` finds
// it.
inline double lazy_one(const Variant& v, double z, i64 before, i64 t) {
  const double phi = v.model.phi[v.r], lo = v.model.lo[v.r], hi = v.model.hi[v.r],
               size = std::fabs(z);
  const bool up = !(z > 0.0);
  const double top = up ? hi : -lo, bottom = up ? lo : -hi;
  i64 held = top <= 0.0 ? t : before;
  if (top > 0.0 && top < INF) held = first_round(v, size, top, true, before, t);
  i64 freed = bottom > 0.0 ? first_round(v, size, bottom, false, before, t) : t;
  freed = freed > held ? freed : held;
  const i64 alive = phi > 0.0 ? first_round(v, size, 0.0, false, before, t) : t;
  i64 end = alive > held ? alive : held;
  end = end < freed ? end : freed;
  double part = size * (v.P[end] - v.P[held]) - phi * (v.Q[end] - v.Q[held]);
  if (held > before) part += top * (v.A[held] - v.A[before]);
  if (bottom > 0.0) part += bottom * (v.A[t] - v.A[freed]);
  return up ? part : -part;
}

// What a coordinate does from the first to the last of some rounds.
struct Stretch {
  double near, near_scale, far, far_scale, lo, hi, dP, fixed, at_lo, at_hi;
  bool boxed;
};

// 0: dead throughout; 1: free throughout; 2: at lo; 3: at hi; 4: it changes on the way.
INLINE int phase(const Stretch& s, double z) {
  const double first = point(z, s.near, s.near_scale, -INF, INF),
               last = point(z, s.far, s.far_scale, -INF, INF);
  const bool free = (first > s.lo) & (first < s.hi) & (last > s.lo) & (last < s.hi) & (last != 0.0);
  int kind = free ? 1 : 4;
  kind = (first == 0.0) & (s.lo <= 0.0) & (s.hi >= 0.0) ? 0 : kind;
  kind = (first <= s.lo) & (last <= s.lo) ? 2 : kind;
  return (first >= s.hi) & (last >= s.hi) ? 3 : kind;
}

// total += sum of a x(z, tau) over rounds before + 1 … t, for a separable h that is not plain l2.
// Nearly every coordinate does the same in all of these rounds; where a strip has some that do not,
// they are found again and searched.
inline void add_separable(const Variant& v, i64 before, i64 t, const double* RESTRICT z,
                          double* RESTRICT total) {
  const double phi = v.model.phi[v.r], lo = v.model.lo[v.r], hi = v.model.hi[v.r],
               dA = v.A[t] - v.A[before];
  const Stretch s = {phi * v.s[before],
                     1.0 / v.denominator(before),
                     phi * v.s[t - 1],
                     1.0 / v.denominator(t - 1),
                     lo,
                     hi,
                     v.P[t] - v.P[before],
                     phi * (v.Q[t] - v.Q[before]),
                     lo * dA,
                     hi * dA,
                     lo > -INF || hi < INF};
  for (i64 first = 0; first < v.m; first += STRIP) {
    const i64 last = first + STRIP < v.m ? first + STRIP : v.m;
    i64 crossing = 0;
    if (s.boxed) {
      for (i64 j = first; j < last; j++) {
        const int kind = phase(s, z[j]);
        double part = kind == 1 ? -z[j] * s.dP + (z[j] > 0.0 ? s.fixed : -s.fixed) : 0.0;
        part = kind == 2 ? s.at_lo : part;
        total[j] += kind == 3 ? s.at_hi : part;
        crossing += kind == 4;
      }
    } else {
      for (i64 j = first; j < last; j++) {
        const double size = std::fabs(z[j]), part = size > s.far ? size * s.dP - s.fixed : 0.0;
        total[j] += z[j] > 0.0 ? -part : part;
        crossing += (size > s.near) & (size <= s.far);
      }
    }
    for (i64 j = first; j < last && crossing > 0; j++) {
      const double size = std::fabs(z[j]);
      const bool changes = s.boxed ? phase(s, z[j]) == 4 : (size > s.near) & (size <= s.far);
      if (changes) total[j] += lazy_one(v, z[j], before, t);
    }
  }
}

// The same where there is no closed form; rounds with the same gamma (and no soft threshold) share
// their x.
inline void add_by_rounds(const Variant& v, i64 before, i64 t, const double* z, double* total,
                          double* x, double* spare) {
  double weight = 0.0;
  for (i64 at = before; at < t; at++) {
    weight += v.a[at];
    const bool still = at + 1 < t && v.gamma[at] == v.gamma[at + 1];
    if (still && v.model.kind != SEPARABLE && v.model.curvature == 0.0) continue;
    primal(v, at, shifted(v, at, z, spare), x);
    add_scaled(total, weight, x, v.m);
    weight = 0.0;
  }
}

// x of a node in round t, and its running sum up to that round. `x` may not be one of `y` and
// `spare`.
inline void stand(const Variant& v, i64 t, i64 before, const double* z, double* total, double* x,
                  double* y, double* spare) {
  const i64 at = v.model.frozen ? before : t - 1;
  const double* here = shifted(v, at, z, y);
  primal(v, at, here, x);
  if (v.model.frozen) {
    add_scaled(total, v.A[t] - v.A[before], x, v.m);
  } else if (!v.model.closed) {
    add_by_rounds(v, before, t, z, total, spare, y);
  } else if (v.model.kind == L2_BALL) {
    add_scaled(total, -ball_weight(v, before, t, std::sqrt(square_norm(here, v.m))), here, v.m);
  } else if (v.free()) {
    add_scaled(total, v.P[before] - v.P[t], here, v.m);
  } else {
    add_separable(v, before, t, here, total);
  }
}

}  // namespace
}  // namespace sottovoce
