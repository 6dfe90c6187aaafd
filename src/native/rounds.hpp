// The rounds start … stop of R runs that share schedule, records and noise term: the loop of edges
// and that of batches.
//
// The order of operations of `DualAveraging.step` and `Descent.step` is repeated here; a contract
// test holds them together. Descent is dual averaging with x = z, -eta_t for a_t, and a proximal
// step after mixing. State is z and total, (R, n, m), and since, (n,).
//
// *Edges*: two active nodes with few records each and an x that is a multiple of z. One pass over
// the coordinates makes the noise, sums up the rounds slept, and sends and mixes both messages.
// Runs whose state is larger than a cache go one by one.
// *Batches*: everything else. Nodes wake one by one, in any thread; then noise and mixing go by
// blocks of coordinates.
#pragma once
#include "gradient.hpp"

namespace sottovoce {
namespace {

template <class F>
inline void in_parallel(Pool* pool, i64 count, F& function) {
  in_parallel(
      pool, count,
      [](void* context, i64 index, int thread) { (*static_cast<F*>(context))(index, thread); },
      &function);
}

// Some active nodes of a round that hear each other.
struct Group {
  i64 t, size, speakers, place;
  const i32* nodes;
  const double* W;
  bool flat;
};

struct Span {
  i64 lo, hi, side;
};

// --- robust averages

// z_i <- z_i + sum of w_ij clip(z_j - z_i); what is not finite counts as nothing.
inline void clip_differences(double* z, const Group& group, double radius, double* wide, i64 m) {
  for (i64 p = 0; p < group.size; p++) {
    const double* own = z + group.nodes[p] * m;
    double* out = wide + p * m;
    put(out, own, m);
    for (i64 q = 0; q < group.size; q++) {
      const double w = group.W[p * group.size + q];
      if (q == p || !(w > 0.0)) continue;
      const double* other = z + group.nodes[q] * m;
      double squares = 0.0;
#pragma omp simd reduction(+ : squares)
      for (i64 j = 0; j < m; j++) squares += (other[j] - own[j]) * (other[j] - own[j]);
      const double length = std::sqrt(squares);
      if (!(0.0 < length && length < INF)) continue;
      const double weight = w * (radius / length < 1.0 ? radius / length : 1.0);
      for (i64 j = 0; j < m; j++) out[j] += weight * (other[j] - own[j]);
    }
  }
  for (i64 p = 0; p < group.size; p++) put(z + group.nodes[p] * m, wide + p * m, m);
}

// The mean of some values without the `trimmed` largest and smallest; sorts them in place.
inline double middle(double* heard, i64 count, i64 trimmed) {
  for (i64 e = 1; e < count; e++) {
    const double value = heard[e];
    i64 at = e;
    for (; at > 0 && !(heard[at - 1] <= value) && value == value; at--)
      heard[at] = heard[at - 1];  // NaN: large
    heard[at] = value;
  }
  double total = 0.0;
  for (i64 e = trimmed; e < count - trimmed; e++) total += heard[e];
  return total / double(count - 2 * trimmed);
}

// z_i <- the trimmed mean of the z_j that it hears, its own among them.
inline void trim(double* z, const Group& group, i64 trimmed, double* wide, double* heard, i64 m) {
  const i64 k = group.size;
  const auto hears = [&](i64 p, i64 q) { return q == p || group.W[p * k + q] > 0.0; };
  for (i64 p = 0; p < k; p++) {
    i64 count = 0;
    bool same = p > 0;
    for (i64 q = 0; q < k; q++) {
      count += hears(p, q);
      same = same && hears(p, q) == hears(p - 1, q);
    }
    if (same) {
      put(wide + p * m, wide + (p - 1) * m, m);
      continue;
    }
    const i64 cut = count > 2 * trimmed ? trimmed : 0;
    for (i64 j = 0; j < m; j++) {
      i64 found = 0;
      for (i64 q = 0; q < k; q++)
        if (hears(p, q)) heard[found++] = z[group.nodes[q] * m + j];
      wide[p * m + j] = cut > 0 ? middle(heard, found, cut) : z[group.nodes[p] * m + j];
    }
  }
  for (i64 p = 0; p < k; p++) put(z + group.nodes[p] * m, wide + p * m, m);
}

template <class Rows>
struct Loop {
  Rounds& rounds;
  const Job& job;
  const Data& data;
  const Model& model;
  const Noise& noise;
  const Spots& spots;
  const Rows X;
  const i64 R, n, m, half;
  i64 ahead = 0;         // the round whose records were drawn ahead of time
  i64 from = 0, to = 0;  // the runs at hand

  explicit Loop(Rounds& rounds)
      : rounds(rounds),
        job(*rounds.job),
        data(job.data),
        model(job.model),
        noise(job.noise),
        spots(rounds.spots),
        X(job.data),
        R(job.runs),
        n(job.nodes),
        m(job.m),
        half((job.m + 1) / 2) {}

  double* z_of(i64 r, i64 node) const { return rounds.z + (r * n + node) * m; }
  double* total_of(i64 r, i64 node) const { return rounds.total + (r * n + node) * m; }
  double factor(const Variant& v, i64 r, i64 t, i64 node) const {
    return v.push[t - 1] * noise.scale[r * n + node];
  }
  Span span(i64 first, i64 size, i64 side) const {
    const i64 lo = first + side * half, hi = lo + size < m ? lo + size : m;
    return {lo, hi > lo ? hi : lo, side};
  }
  void key_of(i64 address, i64 t, u32* key) const {
    threefry(noise.noise_key[0], noise.noise_key[1], u32(address), u32(t), key[0], key[1]);
  }

  // The records of an active node: how many, or ALL; their places, if any, stand in `picks`.
  i64 pick(i64 node, i64 t, i64 place, i64* buffer, bool* taken, const i64*& picks) const {
    picks = nullptr;
    if (rounds.injected) {
      const Injected& given = *rounds.injected;
      if (given.every[place]) return ALL;
      picks = given.records + given.starts[place];
      return given.starts[place + 1] - given.starts[place];
    }
    const i64 q = data.offsets[node + 1] - data.offsets[node];
    const i64 count = draw_records(noise.sampler, noise.records_key, node, t, q, noise.batch[node],
                                   noise.gap_scale[node], buffer, data.most, taken);
    if (count != ALL) picks = buffer;
    return count;
  }

  void run() {
    const bool alone = job.edges && R * n * m > FAR_STATE;
    std::memcpy(spots.since, rounds.since, size_t(n) * sizeof(i64));
    for (; from < R; from = to, ahead = 0) {
      to = alone ? from + 1 : R;
      std::memcpy(rounds.since, spots.since, size_t(n) * sizeof(i64));
      for (i64 t = rounds.start; t <= rounds.stop; t++) round(t);
    }
  }

  void round(i64 t) {
    const Plan& plan = job.plan;
    const i64 begin = plan.starts[t - 1], pattern = plan.pattern[t - 1];
    const i64 groups = plan.groups[pattern], size = (plan.starts[t] - begin) / groups;
    for (i64 g = 0; g < groups; g++) {
      const i64 left = plan.speakers - g * size, at = begin + g * size;
      const Group group = {t,
                           size,
                           left < 0      ? 0
                           : left < size ? left
                                         : size,
                           at - plan.starts[rounds.start - 1],
                           plan.active + at,
                           plan.weights + plan.corners[pattern] + g * size * size,
                           plan.flat[pattern]};
      const bool edge = job.edges && size == 2 && groups == 1 && draw_edge(t);
      for (i64 p = 0; p < size; p++) {
        spots.before[p] = rounds.since[group.nodes[p]] - 1;
        rounds.since[group.nodes[p]] = t + 1;
      }
      edge ? edge_round(group) : batch_round(group);
      auto proximal = [&](i64 p, int) {
        for (i64 r = from; r < to; r++)
          shrink(model, r, -Variant(job, r).push[t - 1], z_of(r, group.nodes[p]), m);
      };
      if (model.descent) in_parallel(rounds.pool, group.speakers, proximal);
    }
  }

  // --- edges

  i64* slot(i64 t) const { return spots.counts + 2 * (t & 1); }
  i64* picks_of(i64 t, i64 p) const { return spots.picks + (2 * (t & 1) + p) * data.most; }

  // Draws the records of round t unless they are known; whether it is one for the loop of edges.
  // Rounds in turn have two places for their records.
  bool draw_edge(i64 t) {
    const i64 begin = job.plan.starts[t - 1];
    if (job.plan.starts[t] - begin != 2) return false;
    if (ahead != t)
      for (i64 p = 0; p < 2; p++) {
        const i64* unused;
        slot(t)[p] = p < job.plan.speakers ? pick(job.plan.active[begin + p], t, 0, picks_of(t, p),
                                                  rounds.scratch->taken, unused)
                                           : 0;
      }
    ahead = t;
    const i64* counts = slot(t);
    return counts[0] != ALL && counts[0] <= BATCH && counts[1] != ALL && counts[1] <= BATCH;
  }

  // What few records pull, and the weight of the rounds slept, of one node in one run.
  double wake_edge(const Variant& v, i64 r, const Group& group, i64 p, double* pulls) const {
    const i64 node = group.nodes[p], t = group.t, count = slot(t)[p], before = spots.before[p];
    const i64 at = model.frozen ? before : t - 1;
    const double scale = model.descent ? -1.0 : 1.0 / v.denominator(at), *z = z_of(r, node);
    if (count > 0) {
      const Scratch& s = *rounds.scratch;
      const double bias = data.intercept != 0.0 ? data.intercept * -scale * z[m - 1] : 0.0;
      for (i64 e = 0; e < count; e++) {
        s.rows[e] = row_of(data, data.offsets[node] + picks_of(t, p)[e]);
        pulls[e] = -scale * X.dot(s.rows[e], z) + bias;
      }
      slopes_and_sizes(data, model, s.rows, count, count, pulls, s.known, s.sizes);
      const double push = factor(v, r, t, node) / double(noise.batch[node]), clip = model.clip[r];
      for (i64 e = 0; e < count; e++) {
        const double brought = s.sizes[e] > clip ? clip / s.sizes[e] : 1.0;
        pulls[e] = s.sizes[e] < INF ? push * (pulls[e] * brought) : 0.0;
      }
    }
    return model.frozen ? scale * (v.A[t] - v.A[before]) : v.P[t] - v.P[before];
  }

  // Of two nodes: what a message, its noise and its record count for in either one's state.
  struct Edge {
    double w[2][2], loud[2][2], pull[2][2], slept[2];
    double *z[2], *total[2];
    bool equal;
  };

  // One stretch of two nodes: rounds slept, noise, one row each if there is one, and the mixture.
  template <bool filled, bool equal, class V>
  static void pass(const Edge& e, i64 lo, i64 hi, const float* RESTRICT v0,
                   const float* RESTRICT v1, const V* RESTRICT c0, const V* RESTRICT c1) {
    double *RESTRICT z0 = e.z[0], *RESTRICT z1 = e.z[1];
    double *RESTRICT total0 = e.total[0], *RESTRICT total1 = e.total[1];
    const double w00 = e.w[0][0], w01 = e.w[0][1], n00 = e.loud[0][0], n01 = e.loud[0][1];
    const double w10 = e.w[1][0], w11 = e.w[1][1], n10 = e.loud[1][0], n11 = e.loud[1][1];
    const double p00 = e.pull[0][0], p01 = e.pull[0][1], p10 = e.pull[1][0], p11 = e.pull[1][1];
    const double slept0 = e.slept[0], slept1 = e.slept[1];
    for (i64 j = lo; j < hi; j++) {
      const double s0 = z0[j], s1 = z1[j], x0 = double(v0[j - lo]), x1 = double(v1[j - lo]);
      total0[j] -= slept0 * s0;
      total1[j] -= slept1 * s1;
      double said = w00 * s0 + w01 * s1 + (n00 * x0 + n01 * x1);
      if (filled) said += p00 * double(c0[j]) + p01 * double(c1[j]);
      z0[j] = said;
      if (!equal) {
        said = w10 * s0 + w11 * s1 + (n10 * x0 + n11 * x1);
        if (filled) said += p10 * double(c0[j]) + p11 * double(c1[j]);
      }
      z1[j] = said;
    }
  }

  template <bool filled, class V>
  static void any_pass(const Edge& e, i64 lo, i64 hi, const float* v0, const float* v1, const V* c0,
                       const V* c1) {
    if (e.equal)
      pass<filled, true>(e, lo, hi, v0, v1, c0, c1);
    else
      pass<filled, false>(e, lo, hi, v0, v1, c0, c1);
  }

  template <class V>
  void pass_of(const Dense<V>& rows, const Edge& e, const Span& s, const float* v0, const float* v1,
               i64 row0, i64 row1) {
    const i64 filled = row0 < 0 && row1 < 0   ? s.lo
                       : s.hi < data.features ? s.hi
                       : s.lo > data.features ? s.lo
                                              : data.features;
    const V *c0 = rows.at(row0 < 0 ? row1 : row0), *c1 = rows.at(row1 < 0 ? row0 : row1);
    if (filled > s.lo) any_pass<true>(e, s.lo, filled, v0, v1, c0, c1);
    if (s.hi > filled)
      any_pass<false>(e, filled, s.hi, v0 + (filled - s.lo), v1 + (filled - s.lo), c0, c1);
  }

  template <class V, class I>
  void pass_of(const Csr<V, I>&, const Edge& e, const Span& s, const float* v0, const float* v1,
               i64, i64) {
    any_pass<false, V>(e, s.lo, s.hi, v0, v1, nullptr, nullptr);
  }

  // Requests memory for part of the dense rows that the next round is going to need.
  void ask(i64 next, i64 chunk, i64 chunks) const {
    if (Rows::sparse || next > rounds.stop || ahead != next) return;
    for (i64 p = 0; p < 2; p++) {
      if (slot(next)[p] < 1) continue;
      const i64 node = job.plan.active[job.plan.starts[next - 1] + p];
      const i64 row = row_of(data, data.offsets[node] + picks_of(next, p)[0]);
      const i64 width = data.features * i64(sizeof(typename Rows::Value));
      const char* c = static_cast<const char*>(data.values) + row * width;
      for (i64 at = width * chunk / chunks; at < width * (chunk + 1) / chunks; at += 64)
        PREFETCH(c + at);
      if (chunk == 0) PREFETCH(data.y + row), PREFETCH(data.norms + row);
    }
  }

  // The share of what node p adds in the state of node q after the round.
  double share_of(const Group& group, i64 q, i64 p) const {
    return model.after ? (p == q ? 1.0 : 0.0) : group.W[2 * q + p];
  }

  void edge_round(const Group& group) {
    const i64 t = group.t;
    const double* W = group.W;
    u32 keys[2][2] = {};
    bool loud = false;
    i64 first_row[2] = {-1, -1};
    for (i64 p = 0; p < group.speakers; p++) {
      if (noise.noisy[group.nodes[p]]) key_of(group.nodes[p], t, keys[p]), loud = true;
      if (!Rows::sparse && slot(t)[p] > 0)
        first_row[p] = row_of(data, data.offsets[group.nodes[p]] + picks_of(t, p)[0]);
    }
    Edge* edges = static_cast<Edge*>(spots.edges);  // one for each run
    for (i64 r = from; r < to; r++) {
      const Variant v(job, r);
      Edge& e = edges[r];
      e.equal = W[0] == W[2] && W[1] == W[3] && !model.after;
      for (i64 p = 0; p < 2; p++) {
        const i64 node = group.nodes[p];
        double* pulls = spots.pulls + (2 * r + p) * data.most;
        e.z[p] = z_of(r, node), e.total[p] = total_of(r, node);
        e.slept[p] = wake_edge(v, r, group, p, pulls);
        const double l =
            p < group.speakers ? factor(v, r, t, node) * noise.sigma[r * n + node] : 0.0;
        for (i64 q = 0; q < 2; q++) {
          e.w[q][p] = W[2 * q + p], e.loud[q][p] = share_of(group, q, p) * l;
          e.pull[q][p] = first_row[p] >= 0 ? share_of(group, q, p) * pulls[0] : 0.0;
        }
      }
    }
    if (t < rounds.stop) draw_edge(t + 1);
    const i64 chunks = (half + CHUNK - 1) / CHUNK;
    alignas(64) float normals[4][CHUNK] = {};
    for (i64 chunk = 0; chunk < chunks; chunk++) {
      const i64 first = chunk * CHUNK, size = half - first < CHUNK ? half - first : CHUNK;
      for (i64 p = 0; p < group.speakers && loud; p++)
        make_normals(keys[p][0], keys[p][1], first, size, normals[2 * p], normals[2 * p + 1]);
      ask(t + 1, chunk, chunks);
      for (i64 r = from; r < to; r++)
        for (i64 side = 0; side < 2; side++)
          pass_of(X, edges[r], span(first, size, side), normals[side], normals[2 + side],
                  first_row[0], first_row[1]);
    }
    for (i64 r = from; r < to; r++)
      for (i64 p = 0; p < group.speakers; p++)
        scatter(group, r, p, spots.pulls + (2 * r + p) * data.most);
  }

  // What is not in a first dense row: entries of CSR rows, other rows, the intercept; with
  // everybody's weight.
  void scatter(const Group& group, i64 r, i64 p, const double* pulls) const {
    const i64 count = slot(group.t)[p], node = group.nodes[p];
    for (i64 q = 0; q < 2; q++) {
      const double share = share_of(group, q, p);
      double* z = z_of(r, group.nodes[q]);
      for (i64 e = 0; e < count && share != 0.0; e++) {
        const i64 row = row_of(data, data.offsets[node] + picks_of(group.t, p)[e]);
        if (Rows::sparse || e > 0) X.add(row, share * pulls[e], z);
        if (data.intercept != 0.0) z[m - 1] += share * pulls[e] * data.intercept;
      }
    }
  }

  // --- batches

  // What ĝ of a node adds to its message, from the sum in scratch.g and x in scratch.x.
  void say(const Variant& v, i64 r, const Group& group, i64 p, Scratch& s) const {
    const i64 node = group.nodes[p];
    const double push = factor(v, r, group.t, node), mean = push / double(noise.batch[node]);
    const double bend = push * model.curvature;
    if (bend != 0.0)
      for (i64 j = 0; j < m; j++) s.g[j] = mean * s.g[j] - bend * s.x[j];
    else
      for (i64 j = 0; j < m; j++) s.g[j] *= mean;
    if (model.after)
      put(spots.held + (r * job.plan.widest + p) * m, s.g, m);
    else
      add_scaled(z_of(r, node), 1.0, s.g, m);
  }

  // g of some units of a node at s.x, where few nodes have many records in parts, whose number
  // follows from the data alone.
  void sum_units(const Units& all, i64 r, Scratch& s) const {
    if (job.parts == 1) return clipped_sum(X, job, model.clip[r], all, s.x, s.g, s);
    const i64 width = (m + 511) / 512 * 512;
    auto part = [&](i64 at, int thread) {
      const Units some = {all.node, all.picks, all.end * at / job.parts,
                          all.end * (at + 1) / job.parts};
      clipped_sum(X, job, model.clip[r], some, s.x, spots.parts + at * width,
                  rounds.scratch[thread]);
    };
    in_parallel(rounds.pool, job.parts, part);
    put(s.g, spots.parts, m);
    for (i64 at = 1; at < job.parts; at++) add_scaled(s.g, 1.0, spots.parts + at * width, m);
  }

  void wake(const Group& group, i64 p, int thread) const {
    Scratch& s = rounds.scratch[thread];
    const i64 node = group.nodes[p], t = group.t;
    const bool speaks = p < group.speakers;
    const i64* picks = nullptr;
    const i64 count = speaks ? pick(node, t, group.place + p, s.picks, s.taken, picks) : 0;
    for (i64 r = from; r < to; r++) {
      const Variant v(job, r);
      stand(v, t, spots.before[p], z_of(r, node), total_of(r, node), s.x, s.y, s.g);
      if (!speaks) continue;
      sum_units({node, picks, 0, units_of(data, node, count)}, r, s);
      say(v, r, group, p, s);
    }
  }

  void add_noise(const Group& group, i64 p, i64 first, i64 size, float* normals) const {
    const i64 node = group.nodes[p];
    const bool counted = !rounds.injected && noise.noisy[node];
    if (counted)
      make_normals(spots.keys[2 * p], spots.keys[2 * p + 1], first, size, normals, normals + BLOCK);
    for (i64 side = 0; side < 2; side++) {
      const Span s = span(first, size, side);
      for (i64 r = from; r < to; r++) {
        const double push = factor(Variant(job, r), r, group.t, node);
        double* z = z_of(r, node) + s.lo;
        if (model.after)
          add_scaled(z, 1.0, spots.held + (r * job.plan.widest + p) * m + s.lo, s.hi - s.lo);
        if (rounds.injected)
          add_scaled(z, push, rounds.injected->noise + (group.place + p) * m + s.lo, s.hi - s.lo);
        else if (counted)
          add_scaled(z, push * noise.sigma[r * n + node], normals + side * BLOCK, s.hi - s.lo);
      }
    }
  }

  // rho/c_i (sqrt(a) eta_i - sum of eta / sqrt(a)) of each of a speakers.
  void add_shared(const Group& group, i64 first, i64 size, Scratch& s) const {
    const double root = std::sqrt(double(group.speakers));
    clear(s.sums, 2 * BLOCK);
    for (int again = 0; again < 2; again++)
      for (i64 p = 0; p < group.speakers; p++) {
        const i64 node = group.nodes[p];
        if (!again) {
          make_normals(spots.pair_keys[2 * p], spots.pair_keys[2 * p + 1], first, size, s.normals,
                       s.normals + BLOCK);
          add_scaled(s.sums, 1.0, s.normals, size);
          add_scaled(s.sums + BLOCK, 1.0, s.normals + BLOCK, size);
        }
        for (i64 side = 0; side < 2; side++) {
          const Span here = span(first, size, side);
          for (i64 r = from; r < to; r++) {
            const double loud =
                factor(Variant(job, r), r, group.t, node) * noise.shared[r * n + node];
            double* z = z_of(r, node) + here.lo;
            if (!again)
              add_scaled(z, loud * root, s.normals + side * BLOCK, here.hi - here.lo);
            else
              add_scaled(z, -loud / root, s.sums + side * BLOCK, here.hi - here.lo);
          }
        }
      }
  }

  void mix(const Group& group, const Span& s, double* mixed) const {
    const i64 k = group.size, size = s.hi - s.lo;
    for (i64 r = from; r < to; r++) {
      for (i64 p = 0; p < (group.flat ? 1 : k); p++) {
        double* out = mixed + p * BLOCK;
        clear(out, size);
        for (i64 q = 0; q < k; q++) {
          const double w = group.flat ? 1.0 / double(k) : group.W[p * k + q];
          if (w != 0.0) add_scaled(out, w, z_of(r, group.nodes[q]) + s.lo, size);
        }
      }
      for (i64 p = 0; p < k; p++)
        put(z_of(r, group.nodes[p]) + s.lo, mixed + (group.flat ? 0 : p * BLOCK), size);
    }
  }

  void speak(const Group& group, i64 first, i64 size, bool shared, bool mixes, int thread) const {
    Scratch& s = rounds.scratch[thread];
    for (int turn = 0; turn < 2; turn++) {
      if (turn == 1 && mixes)
        for (i64 side = 0; side < 2; side++) mix(group, span(first, size, side), s.mixed);
      if (model.after != (turn == 1)) continue;
      for (i64 p = 0; p < group.speakers; p++) add_noise(group, p, first, size, s.normals);
      if (shared) add_shared(group, first, size, s);
    }
  }

  void bound(const Group& group) const {
    for (i64 r = from; r < to; r++) {
      double* z = rounds.z + r * n * m;
      const double unit = std::fabs(Variant(job, r).push[group.t - 1]);
      if (job.plan.averaging == CLIPPED)
        clip_differences(z, group, job.plan.bound * unit, spots.wide, m);
      else
        trim(z, group, i64(job.plan.bound), spots.wide, rounds.scratch->heard, m);
    }
  }

  void batch_round(const Group& group) const {
    const bool mixes = job.plan.averaging == MATRIX;
    const bool gone =
        group.flat && noise.level && group.speakers == group.size && !model.after && mixes;
    const bool shared = noise.pairs && !gone && !rounds.injected;
    for (i64 p = 0; p < group.speakers; p++) {
      key_of(group.nodes[p], group.t, spots.keys + 2 * p);
      if (shared) key_of(n + group.nodes[p], group.t, spots.pair_keys + 2 * p);
    }
    auto one = [&](i64 p, int thread) { wake(group, p, thread); };
    in_parallel(job.parts > 1 ? nullptr : rounds.pool, group.size, one);
    if (!mixes && model.after) bound(group);
    auto block = [&](i64 at, int thread) {
      const i64 first = at * BLOCK, size = half - first < BLOCK ? half - first : BLOCK;
      speak(group, first, size, shared, mixes, thread);
    };
    in_parallel(rounds.pool, (half + BLOCK - 1) / BLOCK, block);
    if (!mixes && !model.after) bound(group);
  }
};

inline void run_rounds(Rounds& rounds) {
  with_rows(rounds.job->data, [&](auto X) { Loop<decltype(X)>(rounds).run(); });
}

}  // namespace
}  // namespace sottovoce
