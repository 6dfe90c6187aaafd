// A node's examine its data: the sum of the clipped subgradients of its units, as
// `problem.objective.clipped_mean`.
//
// A unit is a record, or a person's rows, whose mean is clipped as one. A block of units at a time:
// all margins, all slopes, all lengths, and then the rows that pull at all. Of K outputs, margins
// and slopes stand output after output.
#pragma once
#include "rows.hpp"

namespace sottovoce {
namespace {

constexpr double TINY = 1e-140;  // below it, squares may have underflowed

// Whose units are summed, and of which: places `picks` of the node's units, or all where it is
// null.
struct Units {
  i64 node;
  const i64* picks;
  i64 begin, end;
};

inline i64 units_of(const Data& data, i64 node, i64 count) {
  return count == ALL ? data.offsets[node + 1] - data.offsets[node] : count;
}

// Calls `go` with the units and the rows of a block, `most` rows unless a single unit has more.
template <class Rows, class F>
inline void in_blocks(const Rows& X, const Data& data, const i64* RESTRICT picks, i64 base, i64 at,
                      i64 end, i64 most, i64* RESTRICT rows, i64* RESTRICT begins, F go) {
  while (at < end) {
    i64 units = 0, count = 0;
    if (!data.starts) {
      units = count = end - at < most ? end - at : most;
      for (i64 e = 0; e < count; e++) rows[e] = base + (picks ? picks[at + e] : at + e);
      for (i64 e = 0; e < count && data.order; e++) rows[e] = data.order[rows[e]];
      at += count;
    }
    for (; at < end && data.starts && units < most; at++, units++) {
      const i64 unit = base + (picks ? picks[at] : at);
      const i64 first = data.starts[unit], size = data.starts[unit + 1] - first;
      if (units > 0 && count + size > most) break;
      begins[units] = count, begins[units + 1] = count + size;
      for (i64 e = 0; e < size; e++) rows[count++] = row_of(data, first + e);
    }
    if (picks) X.ask_for(rows, count);
    go(units, count);
  }
}

// Slopes of some rows at scale x, times the rows' weights. `y` has one stretch, `spare` K.
template <class Rows>
inline void slopes_at(const Rows& X, const Data& data, const Objective& of, double scale,
                      const double* x, i64 m, const i64* rows, i64 count, i64 stride, double* u,
                      double* y, double* spare) {
  for (i64 k = 0; k < of.outputs; k++) {
    const double bias = data.intercept != 0.0 ? data.intercept * x[(k + 1) * m - 1] : 0.0;
    X.dots(rows, count, x + k * m, bias, u + k * stride);
    for (i64 e = 0; e < count; e++) u[k * stride + e] *= scale;
  }
  for (i64 e = 0; e < count; e++) y[e] = data.y[rows[e]];
  slopes(of, u, y, count, stride, spare);
  for (i64 k = 0; k < of.outputs && data.weights; k++)
    for (i64 e = 0; e < count; e++) u[k * stride + e] *= data.weights[rows[e]];
}

// `secure.functions.lengths` of K stretches side by side: into `lengths`; `spare` has K stretches,
// `largest` one.
inline void lengths_of(const double* values, i64 count, i64 K, i64 stride, double* spare,
                       double* largest, double* lengths) {
  for (i64 e = 0; e < count; e++) largest[e] = 0.0;
  for (i64 k = 0; k < K; k++)
    for (i64 e = 0; e < count; e++) {
      const double size = std::fabs(values[k * stride + e]);
      largest[e] = size > largest[e] ? size : largest[e];
    }
  for (i64 e = 0; e < count; e++) largest[e] = largest[e] > 0.0 ? largest[e] : 1.0;
  for (i64 k = 0; k < K; k++)
    for (i64 e = 0; e < count; e++) {
      const double share = values[k * stride + e] / largest[e];
      spare[k * stride + e] = share * share;
    }
  halved_sums(spare, count, K, stride);
  for (i64 e = 0; e < count; e++) lengths[e] = largest[e] * std::sqrt(spare[e]);
}

// Lengths of the rows' subgradients; `spare` has K + 2 stretches.
inline void sizes_of(const Data& data, i64 K, const i64* rows, i64 count, i64 stride,
                     const double* u, double* RESTRICT sizes, double* RESTRICT spare) {
  for (i64 e = 0; e < count; e++) spare[e] = data.norms[rows[e]];
  if (K > 1)
    lengths_of(u, count, K, stride, spare + stride, spare + (K + 1) * stride, sizes);
  else
    for (i64 e = 0; e < count; e++) sizes[e] = std::fabs(u[e]);
  for (i64 e = 0; e < count; e++) sizes[e] *= spare[e];
}

// Lengths to the factors that bring them to the clip; what is not a number counts as nothing.
inline void clip_factors(double* sizes, i64 count, double clip) {
  for (i64 e = 0; e < count; e++) {
    const double factor = sizes[e] > clip ? clip / sizes[e] : 1.0;
    sizes[e] = sizes[e] < INF ? factor : 0.0;
  }
}

// Slopes times factors; nothing where a factor is zero, even if the slope is no number.
inline void scale_slopes(double* RESTRICT u, const double* RESTRICT factors, i64 count, i64 K,
                         i64 stride) {
  for (i64 k = 0; k < K; k++)
    for (i64 e = 0; e < count; e++) {
      double& mine = u[k * stride + e];
      mine = factors[e] != 0.0 ? mine * factors[e] : 0.0;
    }
}

// Moves the coordinates that a row touches out of `mean`; gives the sum of their squares. A
// coordinate that several rows share is counted once: it is zero afterwards.
template <class Rows>
inline double take_touched(const Rows& X, i64 row, double intercept, i64 K, i64 m, double* mean,
                           i64* places, double* values, i64& found) {
  double squares = 0.0;
  const auto take = [&](i64 j) {
    squares += mean[j] * mean[j];
    places[found] = j, values[found++] = mean[j];
    mean[j] = 0.0;
  };
  for (i64 k = 0; k < K; k++) {
    X.each(row, [&](i64 j, double) { take(k * m + j); });
    if (intercept != 0.0) take((k + 1) * m - 1);
  }
  return squares;
}

// Adds a person whose rows are too long on average: their mean in units of `longest`, measured,
// scaled and added. scratch.mean is zero before and after.
template <class Rows>
inline void add_measured(const Rows& X, const Data& data, i64 K, i64 m, const i64* rows, i64 count,
                         i64 stride, const double* u, double longest, double clip, double* g,
                         Scratch& scratch) {
  const double share = 1.0 / double(count);
  double* mean = scratch.mean;
  for (i64 k = 0; k < K; k++)
    for (i64 e = 0; e < count; e++) {
      const double weight = share * (u[k * stride + e] / longest);
      X.add(rows[e], weight, mean + k * m);
      mean[(k + 1) * m - 1] += weight * data.intercept;
    }
  double squares = 0.0;
  i64 found = 0;
  if (Rows::sparse)
    for (i64 e = 0; e < count; e++)
      squares += take_touched(X, rows[e], data.intercept, K, m, mean, scratch.places,
                              scratch.values, found);
  else
    squares = square_norm(mean, K * m);
  const double room = clip / std::sqrt(squares), factor = room < longest ? room : longest;
  if (TINY * TINY < squares && squares < INF) {
    if (Rows::sparse)
      for (i64 e = 0; e < found; e++) g[scratch.places[e]] += factor * scratch.values[e];
    else
      add_scaled(g, factor, mean, K * m);
  }
  if (!Rows::sparse) clear(mean, K * m);
}

// Factors of rows that bring each person to the clip, written over `sizes`; persons that must be
// measured are added at once.
template <class Rows>
inline void person_factors(const Rows& X, const Data& data, i64 K, i64 m, double clip, i64 units,
                           i64 stride, double* g, Scratch& scratch) {
  for (i64 unit = 0; unit < units; unit++) {
    const i64 first = scratch.begins[unit], count = scratch.begins[unit + 1] - first;
    double longest = 0.0;
    for (i64 e = first; e < first + count; e++) longest += scratch.sizes[e];
    longest /= double(count);
    double factor = (longest > clip ? clip / longest : 1.0) / double(count);
    if (longest < INF && longest > clip && count > 1)
      add_measured(X, data, K, m, scratch.rows + first, count, stride, scratch.u + first, longest,
                   clip, g, scratch),
          factor = 0.0;
    for (i64 e = first; e < first + count; e++) scratch.sizes[e] = longest < INF ? factor : 0.0;
  }
}

// Moves the rows that pull to the front, without a branch; gives how many they are.
inline i64 keep_pulling(i64 K, i64 count, i64 stride, i64* rows, double* RESTRICT u) {
  i64 found = 0, idle = 0;
  for (i64 e = 0; e < count; e++) idle += u[e] == 0.0;
  if (idle == 0) return count;
  for (i64 e = 0; e < count; e++) {
    bool pulls = false;
    rows[found] = rows[e];
    for (i64 k = 0; k < K; k++) {
      const double mine = u[k * stride + e];
      u[k * stride + found] = mine;
      pulls |= mine != 0.0;
    }
    found += pulls;
  }
  return found;
}

// g += the sum of rows times their slopes.
template <class Rows>
inline void pull_rows(const Rows& X, const Data& data, i64 K, i64 m, i64 count, i64 stride,
                      i64* rows, double* u, double* g) {
  const i64 found = keep_pulling(K, count, stride, rows, u);
  for (i64 k = 0; k < K; k++) {
    X.pull(rows, found, u + k * stride, g + k * m);
    if (data.intercept != 0.0) g[(k + 1) * m - 1] += data.intercept * sum_of(u + k * stride, found);
  }
}

// g += sum of clip(subgradient) over some units at x; a factor for each record may be given.
template <class Rows>
inline void add_block(const Rows& X, const Data& data, const Model& model, double clip, i64 units,
                      i64 count, const double* x, double* g, i64 m, const double* weights,
                      Scratch& scratch) {
  const i64 K = model.loss.outputs, stride = data.longest > BATCH ? data.longest : BATCH;
  double *u = scratch.u, *sizes = scratch.sizes, *spare = scratch.known;
  slopes_at(X, data, model.loss, 1.0, x, m, scratch.rows, count, stride, u, spare, spare + stride);
  sizes_of(data, K, scratch.rows, count, stride, u, sizes, spare);
  if (data.starts)
    person_factors(X, data, K, m, clip, units, stride, g, scratch);
  else
    clip_factors(sizes, count, clip);
  for (i64 e = 0; e < count && weights; e++) sizes[e] *= weights[e];
  scale_slopes(u, sizes, count, K, stride);
  pull_rows(X, data, K, m, count, stride, scratch.rows, u, g);
}

// g = sum of clip(subgradient) over some of a node's units at x.
template <class Rows>
inline void clipped_sum(const Rows& X, const Job& job, double clip, const Units& which,
                        const double* x, double* g, Scratch& scratch) {
  const i64 m = job.m / job.model.loss.outputs;
  clear(g, job.m);
  in_blocks(X, job.data, which.picks, job.data.offsets[which.node], which.begin, which.end,
            X.block(BATCH), scratch.rows, scratch.begins, [&](i64 units, i64 count) {
              add_block(X, job.data, job.model, clip, units, count, x, g, m, nullptr, scratch);
            });
}

}  // namespace
}  // namespace sottovoce
