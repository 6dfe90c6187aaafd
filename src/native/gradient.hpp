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
constexpr i64 SOON = 8;          // rows by which memory is requested a dense row before it is read

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

// Slopes of a block of rows over their margins, times the rows' weights, and the lengths of their
// subgradients.
inline void slopes_and_sizes(const Data& data, const Model& model, const i64* rows, i64 count,
                             i64 stride, double* u, double* known, double* sizes) {
  const i64 K = model.outputs;
  for (i64 e = 0; e < count; e++) known[e] = data.y[rows[e]];
  if (K == 1)
    single_slopes(model.loss, model.parameter, u, known, count);
  else
    joint_slopes(model.loss, model.parameter, u, known, count, K, stride, known + stride);
  if (data.weights) {
    for (i64 e = 0; e < count; e++) known[e] = data.weights[rows[e]];
    for (i64 k = 0; k < K; k++)
      for (i64 e = 0; e < count; e++) u[k * stride + e] *= known[e];
  }
  for (i64 e = 0; e < count; e++) known[e] = data.norms[rows[e]];
  if (K == 1) {
    for (i64 e = 0; e < count; e++) sizes[e] = std::fabs(u[e]) * known[e];
    return;
  }
  double *RESTRICT largest = known + stride, *RESTRICT squares = known + 2 * stride;
  for (i64 e = 0; e < count; e++) largest[e] = 0.0, squares[e] = 0.0, sizes[e] = 0.0;
  for (i64 k = 0; k < K; k++)
    for (i64 e = 0; e < count; e++) {
      const double size = std::fabs(u[k * stride + e]);
      largest[e] = size > largest[e] ? size : largest[e];
      sizes[e] += size;  // not a number where a slope is not
    }
  for (i64 k = 0; k < K; k++)
    for (i64 e = 0; e < count; e++) {
      const double share = u[k * stride + e] / largest[e];
      squares[e] += share * share;
    }
  // where the largest is tiny the plain sum is no clip's business, and at most sqrt(K) too long
  for (i64 e = 0; e < count; e++)
    sizes[e] = (largest[e] < TINY || sizes[e] != sizes[e] ? sizes[e]
                                                          : largest[e] * std::sqrt(squares[e])) *
               known[e];
}

// Moves the coordinates that a row touches out of `mean`; gives the sum of their squares. A
// coordinate that several rows share is counted once: it is zero afterwards.
template <class V, class I>
inline double take_touched(const Csr<V, I>& X, i64 row, double intercept, i64 K, i64 m,
                           double* mean, i64* places, double* values, i64& found) {
  double squares = 0.0;
  const auto take = [&](i64 j) {
    squares += mean[j] * mean[j];
    places[found] = j, values[found++] = mean[j];
    mean[j] = 0.0;
  };
  for (i64 k = 0; k < K; k++) {
    for (i64 at = X.indptr[row]; at < X.indptr[row + 1]; at++) take(k * m + X.indices[at]);
    if (intercept != 0.0) take((k + 1) * m - 1);
  }
  return squares;
}

template <class V>
inline double take_touched(const Dense<V>&, i64, double, i64, i64, double*, i64*, double*, i64&) {
  return 0.0;
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

// Factors of rows that bring each unit to the clip, written over `sizes`; persons that must be
// measured are added at once.
template <class Rows>
inline void unit_factors(const Rows& X, const Data& data, i64 K, i64 m, double clip, i64 units,
                         i64 stride, double* g, Scratch& scratch) {
  for (i64 unit = 0; unit < units; unit++) {
    const i64 first = scratch.begins[unit], count = scratch.begins[unit + 1] - first;
    double longest = 0.0;
    for (i64 e = first; e < first + count; e++) longest += scratch.sizes[e];
    longest /= double(count);
    double factor = (longest > clip ? clip / longest : 1.0) / double(count);
    if (!(longest < INF)) factor = 0.0;
    if (longest < INF && longest > clip && count > 1) {
      add_measured(X, data, K, m, scratch.rows + first, count, stride, scratch.u + first, longest,
                   clip, g, scratch);
      factor = 0.0;
    }
    for (i64 e = first; e < first + count; e++) scratch.sizes[e] = factor;
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

// g += sum of clip(subgradient) over some units at x; a factor for each unit's node may be given.
template <class Rows>
inline void add_block(const Rows& X, const Data& data, const Model& model, double clip, i64 units,
                      i64 count, const double* x, double* g, i64 m, const double* weights,
                      Scratch& scratch) {
  const i64 K = model.outputs, stride = data.longest > BATCH ? data.longest : BATCH;
  double *u = scratch.u, *sizes = scratch.sizes;
  for (i64 k = 0; k < K; k++) {
    const double* mine = x + k * m;
    const double bias = data.intercept != 0.0 ? data.intercept * mine[m - 1] : 0.0;
    X.dots(scratch.rows, count, mine, bias, u + k * stride);
  }
  slopes_and_sizes(data, model, scratch.rows, count, stride, u, scratch.known, sizes);
  if (data.starts) {
    unit_factors(X, data, K, m, clip, units, stride, g, scratch);
  } else {
    for (i64 e = 0; e < count; e++) {
      const double factor = sizes[e] > clip ? clip / sizes[e] : 1.0;
      sizes[e] = sizes[e] < INF ? factor : 0.0;  // what is not a number counts as nothing
    }
    if (weights)
      for (i64 e = 0; e < count; e++) sizes[e] *= weights[e];
  }
  for (i64 k = 0; k < K; k++)
    for (i64 e = 0; e < count; e++) {
      double& mine = u[k * stride + e];
      mine = sizes[e] != 0.0 ? mine * sizes[e] : 0.0;  // also where a slope is no number
    }
  const i64 found = keep_pulling(K, count, stride, scratch.rows, u);
  for (i64 k = 0; k < K; k++) {
    X.pull(scratch.rows, found, u + k * stride, g + k * m);
    if (data.intercept != 0.0) g[(k + 1) * m - 1] += data.intercept * sum_of(u + k * stride, found);
  }
}

// The rows of some records.
inline void name_rows(const Data& data, i64 base, const i64* RESTRICT picks, i64 first, i64 count,
                      i64* RESTRICT rows) {
  for (i64 e = 0; e < count; e++) rows[e] = base + (picks ? picks[first + e] : first + e);
  for (i64 e = 0; e < count && data.order; e++) rows[e] = data.order[rows[e]];
}

// The rows of people from `at` on, no more than `most` unless the first one has more; moves `at`,
// gives how many rows.
inline i64 name_people(const Data& data, i64 base, const Units& which, i64 most, i64& at,
                       i64& units, i64* rows, i64* begins) {
  i64 count = 0;
  for (; at < which.end && units < most; at++, units++) {
    const i64 unit = base + (which.picks ? which.picks[at] : at);
    const i64 first = data.starts[unit], size = data.starts[unit + 1] - first;
    if (units > 0 && count + size > most) break;
    begins[units] = count;
    for (i64 e = 0; e < size; e++) rows[count++] = row_of(data, first + e);
  }
  begins[units] = count;
  return count;
}

// g = sum of clip(subgradient) over some of a node's units at x.
template <class Rows>
inline void clipped_sum(const Rows& X, const Job& job, double clip, const Units& which,
                        const double* x, double* g, Scratch& scratch) {
  const Data& data = job.data;
  const i64 m = job.m / job.model.outputs, most = X.block(BATCH), base = data.offsets[which.node];
  const bool ask = which.picks && !Rows::sparse;
  clear(g, job.m);
  for (i64 at = which.begin; at < which.end;) {
    i64 units = 0, count = 0;
    if (data.starts) {
      count = name_people(data, base, which, most, at, units, scratch.rows, scratch.begins);
    } else {
      units = count = which.end - at < most ? which.end - at : most;
      for (i64 e = 0; e < count && ask; e++)
        if (at + e + SOON < which.end) X.ask_for(row_of(data, base + which.picks[at + e + SOON]));
      name_rows(data, base, which.picks, at, count, scratch.rows);
      at += count;
    }
    add_block(X, data, job.model, clip, units, count, x, g, m, nullptr, scratch);
  }
}

}  // namespace
}  // namespace sottovoce
