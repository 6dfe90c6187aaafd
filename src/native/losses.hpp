// Slopes of the losses of `sottovoce.problem.losses`, over blocks of margins; a test holds them to
// the table's formulas.
//
// The exponential is that of `secure.functions.exp`: the same bits in every lane, on every machine.
#pragma once
#include "draws.hpp"

namespace sottovoce {
namespace {

// 1/13!, 1/12!, …, 1
constexpr double EXP[14] = {1.0 / 6227020800.0,
                            1.0 / 479001600.0,
                            1.0 / 39916800.0,
                            1.0 / 3628800.0,
                            1.0 / 362880.0,
                            1.0 / 40320.0,
                            1.0 / 5040.0,
                            1.0 / 720.0,
                            1.0 / 120.0,
                            1.0 / 24.0,
                            1.0 / 6.0,
                            0.5,
                            1.0,
                            1.0};
constexpr double LOG2_E = 1.0 / 0.693147180559945309417232121458;
constexpr double LN2_HIGH = 6.93147180369123816490e-01, LN2_LOW = 1.90821492927058770002e-10;
constexpr double ROUNDER =
    0x1.8p52;  // added and taken off: a small number is rounded to a whole one

// e^v of |v| <= 700; larger ones count as 700. NaN stays NaN.
INLINE double exponential(double v) {
  v = v < -700.0 ? -700.0 : v;
  v = v > 700.0 ? 700.0 : v;
  const double octaves = std::floor(v * LOG2_E + 0.5);
  const double rest = (v - octaves * LN2_HIGH) - octaves * LN2_LOW;
  double power = EXP[0];
  for (int k = 1; k < 14; k++) power = power * rest + EXP[k];
  // the low bits of octaves + ROUNDER are those of the whole number
  const u64 whole = bits_of<u64>(octaves + ROUNDER);
  return power * bits_of<double>((whole + 1023) << 52);
}

template <class F>
INLINE void each(double* RESTRICT u, const double* RESTRICT y, i64 count, F slope) {
  for (i64 e = 0; e < count; e++) u[e] = slope(u[e], y[e]);
}

// Slopes of a loss of one margin, written over the margins.
inline void single_slopes(Loss loss, double k, double* u, const double* y, i64 count) {
  const auto larger = [](double a, double b) { return a > b || a != a ? a : b; };  // NaN stays
  const auto smaller = [](double a, double b) { return a < b || a != a ? a : b; };
  switch (loss) {
    case HINGE:
      return each(u, y, count, [](double u, double y) { return -y * (y * u < 1.0 ? 1.0 : 0.0); });
    case SMOOTHED_HINGE:
      return each(u, y, count, [=](double u, double y) {
        return -y * smaller(larger(1.0 - y * u, 0.0) / k, 1.0);
      });
    case LOGISTIC:
      return each(u, y, count, [](double u, double y) { return -y / (1.0 + exponential(y * u)); });
    case SQUARED_HINGE:
      return each(u, y, count, [=](double u, double y) { return -y * larger(1.0 - y * u, 0.0); });
    case SQUARED:
      return each(u, y, count, [](double u, double y) { return u - y; });
    case HUBER:
      return each(u, y, count, [=](double u, double y) { return smaller(larger(u - y, -k), k); });
    case ABSOLUTE:
      return each(u, y, count, [](double u, double y) {
        const double d = u - y;
        return d > 0.0 ? 1.0 : d < 0.0 ? -1.0 : d;
      });
    case QUANTILE:
      return each(u, y, count, [=](double u, double y) {
        return (1.0 - k) * (u > y ? 1.0 : 0.0) - k * (u < y ? 1.0 : 0.0);
      });
    default:
      for (i64 e = 0; e < count; e++) u[e] = NAN;
  }
}

inline double halved_sum(double* values, i64 count) {
  while (count > 1) {
    const i64 half = (count + 1) / 2;
    for (i64 j = 0; j < count - half; j++) values[j] += values[half + j];
    count = half;
  }
  return values[0];
}

// The same of K stretches side by side, as `secure.functions.halved_sum`; the sums stand in the
// first one.
inline void halved_sums(double* values, i64 count, i64 K, i64 stride) {
  while (K > 1) {
    const i64 half = (K + 1) / 2;
    for (i64 k = 0; k < K - half; k++) {
      double* RESTRICT one = values + k * stride;
      const double* RESTRICT other = values + (half + k) * stride;
      for (i64 e = 0; e < count; e++) one[e] += other[e];
    }
    K = half;
  }
}

// Slopes over margins: of one output, of the softmax, or of the rows against the rest; output after
// output, `stride` apart. `spare` has as many stretches of `stride` numbers as there are outputs.
inline void slopes(const Objective& of, double* u, const double* y, i64 count, i64 stride,
                   double* spare) {
  if (of.outputs == 1) return single_slopes(of.loss, of.parameter, u, y, count);
  if (of.loss != SOFTMAX) {
    for (i64 c = 0; c < of.outputs; c++) {
      for (i64 e = 0; e < count; e++) spare[e] = y[e] == double(c) ? 1.0 : -1.0;
      single_slopes(of.loss, of.parameter, u + c * stride, spare, count);
    }
    return;
  }
  double* RESTRICT top = spare;
  for (i64 e = 0; e < count; e++) top[e] = u[e];
  for (i64 c = 1; c < of.outputs; c++)
    for (i64 e = 0; e < count; e++) {
      const double mine = u[c * stride + e];
      top[e] = mine > top[e] || mine != mine ? mine : top[e];
    }
  for (i64 c = 0; c < of.outputs; c++)
    for (i64 e = 0; e < count; e++) u[c * stride + e] = exponential(u[c * stride + e] - top[e]);
  std::memcpy(spare, u, size_t((of.outputs - 1) * stride + count) * sizeof(double));
  halved_sums(spare, count, of.outputs, stride);
  for (i64 c = 0; c < of.outputs; c++)
    for (i64 e = 0; e < count; e++)
      u[c * stride + e] = u[c * stride + e] / spare[e] - (y[e] == double(c) ? 1.0 : 0.0);
}

}  // namespace
}  // namespace sottovoce
