// One pass of proximal stochastic dual coordinate ascent (Shalev-Shwartz and Zhang, 2014).
//
// The dual point is a slope s_r a row. Beside it are kept z = kappa x0 - sum of w_r s_r c_r and its
// value x, a soft threshold, a division and a clip of z. A row costs one product, and, where its
// slope moves, one update of z and x at its filled coordinates.
#pragma once
#include "rows.hpp"

namespace sottovoce {
namespace {

constexpr int NEWTON_STEPS = 60;  // bisection alone would be down to rounding by then

INLINE double dual_primal(double z, double phi, double scale, double lo, double hi) {
  double x = (z > phi ? z - phi : z < -phi ? z + phi : 0.0) * scale;
  x = x < lo ? lo : x;
  return x > hi ? hi : x;
}

// argmax of -phi*(s') + (s' - s)u - eta (s' - s)^2/2 for the logistic entropy.
//
// With alpha = -s'y and t = log alpha/(1 - alpha) its condition is t + yu + eta (sigma(t) -
// sigma_0) = 0: increasing in t, with a slope between 1 and 1 + eta/4, and a root between the ends
// where sigma(t) is replaced by 1 and by 0.
inline double logistic_dual(double s, double u, double y, double eta) {
  const double margin = y * u, start = -s * y;
  double low = -margin - eta * (1.0 - start), high = -margin + eta * start, t = 0.5 * (low + high);
  if (0.0 < start && start < 1.0) {
    t = std::log(start / (1.0 - start));
    t = t > low ? t : low;
    t = t < high ? t : high;
  }
  for (int step = 0; step < NEWTON_STEPS; step++) {
    const double share = t > -700.0 ? 1.0 / (1.0 + std::exp(-t)) : 0.0;
    const double excess = t + margin + eta * (share - start);
    (excess > 0.0 ? high : low) = t;
    double next = t - excess / (1.0 + eta * share * (1.0 - share));
    if (!(low < next && next < high)) next = 0.5 * (low + high);
    const bool done = std::fabs(next - t) <= 1e-14 * (1.0 + std::fabs(t));
    t = next;
    if (done) break;
  }
  return t > -700.0 ? -y / (1.0 + std::exp(-t)) : 0.0;
}

// The slope that raises the dual's quadratic lower bound most along one coordinate.
inline double dual_slope(const Dual& d, i64 row, double u) {
  const double eta = d.steps[row] * d.scale, low = d.low[row], high = d.high[row];
  double s = d.s[row];
  if (d.entropy) return logistic_dual(s, u, d.y[row], eta);
  const double ascent = u - d.y[row] - d.curvature * s, bend = eta + d.curvature;
  if (bend > 0.0)
    s += ascent / bend;
  else if (ascent != 0.0)  // an empty row and a piecewise linear loss: the best slope is an end of
                           // the interval
    s = ascent > 0.0 ? high : low;
  s = s < low ? low : s;
  return s > high ? high : s;
}

// Visits the given rows once, in their order; s, z and x are updated in place.
inline void dual_pass(Dual& d) {
  with_rows(d.data, [&](auto X) {
    const i64 last = d.data.features;  // the intercept's coordinate
    const double intercept = d.data.intercept, phi = d.phi, scale = d.scale, lo = d.lo, hi = d.hi;
    double *RESTRICT z = d.z, *RESTRICT x = d.x;
    for (i64 e = 0; e < d.count; e++) {
      const i64 row = d.rows[e];
      const double u = X.dot(row, x) + (intercept != 0.0 ? intercept * x[last] : 0.0);
      const double found = dual_slope(d, row, u), push = d.w[row] * (d.s[row] - found);
      if (found == d.s[row]) continue;
      d.s[row] = found;
      const auto move = [=](i64 j, double value) {
        z[j] += push * value;
        x[j] = dual_primal(z[j], phi, scale, lo, hi);
      };
      X.each(row, move);
      if (intercept != 0.0) move(last, intercept);
    }
  });
}

}  // namespace
}  // namespace sottovoce
