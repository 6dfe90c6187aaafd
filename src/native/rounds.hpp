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

// The active nodes of a round.
struct Group {
  i64 t, size, speakers, place;
  const i32* nodes;
  const double* W;
  bool flat;
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
  const Job& job = *rounds.job;
  const Data& data = job.data;
  const Model& model = job.model;
  const Noise& noise = job.noise;
  const Spots& spots = rounds.spots;
  const Rows X{job.data};
  const i64 R = job.runs, n = job.nodes, m = job.m, half = (m + 1) / 2;
  i64 from = 0, to = 0;  // the runs at hand

  double* z_of(i64 r, i64 node) const { return rounds.z + (r * n + node) * m; }
  double* total_of(i64 r, i64 node) const { return rounds.total + (r * n + node) * m; }
  double factor(i64 r, i64 t, i64 node) const {
    return Variant(job, r).push[t - 1] * noise.scale[r * n + node];
  }
  void key_of(i64 address, i64 t, u32* key) const {
    threefry(noise.noise_key[0], noise.noise_key[1], u32(address), u32(t), key[0], key[1]);
  }
  // Coordinates first … of both halves.
  template <class V>
  void add(i64 r, i64 node, i64 first, i64 size, double weight, const V* one,
           const V* other) const {
    const i64 rest = m - half - first;
    add_scaled(z_of(r, node) + first, weight, one, size);
    add_scaled(z_of(r, node) + half + first, weight, other, size < rest ? size : rest);
  }

  // The records of an active node: how many, or ALL; their places, if any, stand in `picks`.
  i64 pick(i64 node, i64 t, i64 place, i64* buffer, bool* taken, const i64*& picks) const {
    if (rounds.injected) {
      const Injected& given = *rounds.injected;
      picks = given.every[place] ? nullptr : given.records + given.starts[place];
      return picks ? given.starts[place + 1] - given.starts[place] : ALL;
    }
    const i64 q = data.offsets[node + 1] - data.offsets[node];
    const i64 count = draw_records(noise.sampler, noise.records_key, node, t, q, noise.batch[node],
                                   noise.gap_scale[node], buffer, data.most, taken);
    picks = count == ALL ? nullptr : buffer;
    return count;
  }

  void run() {
    const bool alone = job.edges && R * n * m > FAR_STATE;
    std::memcpy(spots.since, rounds.since, size_t(n) * sizeof(i64));
    for (; from < R; from = to) {
      to = alone ? from + 1 : R;
      std::memcpy(rounds.since, spots.since, size_t(n) * sizeof(i64));
      for (i64 t = rounds.start; t <= rounds.stop; t++) round(t);
    }
  }

  void round(i64 t) const {
    const Plan& plan = job.plan;
    const i64 begin = plan.starts[t - 1], pattern = plan.pattern[t - 1],
              size = plan.starts[t] - begin;
    const Group group = {t,
                         size,
                         plan.speakers < size ? plan.speakers : size,
                         begin - plan.starts[rounds.start - 1],
                         plan.active + begin,
                         plan.weights + plan.corners[pattern],
                         plan.flat[pattern]};
    for (i64 p = 0; p < size; p++) {
      spots.before[p] = rounds.since[group.nodes[p]] - 1;
      rounds.since[group.nodes[p]] = t + 1;
    }
    job.edges&& size == 2 && draw_edge(group) ? edge_round(group) : batch_round(group);
    auto proximal = [&](i64 p, int) {
      for (i64 r = from; r < to; r++)
        shrink(model, r, -Variant(job, r).push[t - 1], z_of(r, group.nodes[p]), m);
    };
    if (model.descent) in_parallel(rounds.pool, group.speakers, proximal);
  }

  // --- edges

  i64* rows_of(i64 p) const { return spots.rows + p * data.most; }

  // Draws the rows of both nodes; whether they are few enough for the loop of edges.
  bool draw_edge(const Group& group) const {
    bool few = true;
    for (i64 p = 0; p < 2; p++) {
      const i64* unused;
      i64 &count = spots.counts[p] = 0, base = data.offsets[group.nodes[p]];
      if (p < group.speakers)
        count = pick(group.nodes[p], group.t, 0, rows_of(p), rounds.scratch->taken, unused);
      for (i64 e = 0; e < count; e++) rows_of(p)[e] = row_of(data, base + rows_of(p)[e]);
      few = few && count != ALL && count <= BATCH;
    }
    return few;
  }

  // What few records pull, and the weight of the rounds slept, of one node in one run.
  double wake_edge(i64 r, const Group& group, i64 p, double* pulls) const {
    const Variant v(job, r);
    const i64 node = group.nodes[p], t = group.t, count = spots.counts[p], before = spots.before[p];
    const double scale = model.descent ? -1.0 : 1.0 / v.denominator(model.frozen ? before : t - 1);
    const double *z = z_of(r, node), push = factor(r, t, node) / double(noise.batch[node]);
    const Scratch& s = *rounds.scratch;
    slopes_at(X, data, model.loss, -scale, z, m, rows_of(p), count, count, pulls, s.known, nullptr);
    sizes_of(data, 1, rows_of(p), count, count, pulls, s.sizes, s.known);
    clip_factors(s.sizes, count, model.clip[r]);
    for (i64 e = 0; e < count; e++) s.sizes[e] *= push;
    scale_slopes(pulls, s.sizes, count, 1, count);
    return model.frozen ? scale * (v.A[t] - v.A[before]) : v.P[t] - v.P[before];
  }

  // One stretch of two nodes: rounds slept, noise, one row each if there is one, and the mixture.
  template <bool filled, class V>
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
      double one = w00 * s0 + w01 * s1 + (n00 * x0 + n01 * x1);
      double other = w10 * s0 + w11 * s1 + (n10 * x0 + n11 * x1);
      if (filled) {
        one += p00 * double(c0[j]) + p01 * double(c1[j]);
        other += p10 * double(c0[j]) + p11 * double(c1[j]);
      }
      z0[j] = one, z1[j] = other;
    }
  }

  void pass_of(const Edge& e, i64 lo, i64 hi, const float* v0, const float* v1,
               const i64* first_row) const {
    using V = typename Rows::Value;
    if constexpr (!Rows::sparse) {
      const i64 row0 = first_row[0], row1 = first_row[1];
      const i64 filled = row0 < 0 && row1 < 0 ? lo : hi < data.features ? hi : data.features;
      if (filled > lo) {
        pass<true>(e, lo, filled, v0, v1, X.at(row0 < 0 ? row1 : row0),
                   X.at(row1 < 0 ? row0 : row1));
        v0 += filled - lo, v1 += filled - lo, lo = filled;
      }
    }
    pass<false, V>(e, lo, hi, v0, v1, nullptr, nullptr);
  }

  // The share of what node p adds in the state of node q after the round.
  double share_of(const Group& group, i64 q, i64 p) const {
    return model.after ? (p == q ? 1.0 : 0.0) : group.W[2 * q + p];
  }

  void edge_round(const Group& group) const {
    const i64 t = group.t;
    u32 keys[2][2] = {};
    bool loud = false;
    i64 first_row[2] = {-1, -1};
    for (i64 p = 0; p < group.speakers; p++) {
      if (noise.noisy[group.nodes[p]]) key_of(group.nodes[p], t, keys[p]), loud = true;
      if (!Rows::sparse && spots.counts[p] > 0) first_row[p] = rows_of(p)[0];
    }
    for (i64 r = from; r < to; r++)
      for (i64 p = 0; p < 2; p++) {
        const i64 node = group.nodes[p];
        Edge& e = spots.edges[r];
        double* pulls = spots.pulls + (2 * r + p) * data.most;
        e.z[p] = z_of(r, node), e.total[p] = total_of(r, node);
        e.slept[p] = wake_edge(r, group, p, pulls);
        const double l = p < group.speakers ? factor(r, t, node) * noise.sigma[r * n + node] : 0.0;
        for (i64 q = 0; q < 2; q++) {
          e.w[q][p] = group.W[2 * q + p], e.loud[q][p] = share_of(group, q, p) * l;
          e.pull[q][p] = first_row[p] >= 0 ? share_of(group, q, p) * pulls[0] : 0.0;
        }
      }
    alignas(64) float normals[4][CHUNK] = {};
    for (i64 first = 0; first < half; first += CHUNK) {
      const i64 last = half - first < CHUNK ? half : first + CHUNK;
      for (i64 p = 0; p < group.speakers && loud; p++)
        make_normals(keys[p][0], keys[p][1], first, last - first, normals[p], normals[2 + p]);
      for (i64 r = from; r < to; r++)
        for (i64 side = 0; side < 2; side++) {
          const i64 hi = side * half + last;
          pass_of(spots.edges[r], side * half + first, hi < m ? hi : m, normals[2 * side],
                  normals[2 * side + 1], first_row);
        }
    }
    for (i64 r = from; r < to; r++)
      for (i64 p = 0; p < group.speakers; p++) scatter(group, r, p);
  }

  // What is not in a first dense row: entries of CSR rows, other rows, the intercept; with
  // everybody's weight.
  void scatter(const Group& group, i64 r, i64 p) const {
    const double* pulls = spots.pulls + (2 * r + p) * data.most;
    for (i64 q = 0; q < 2; q++) {
      const double share = share_of(group, q, p);
      double* z = z_of(r, group.nodes[q]);
      for (i64 e = 0; e < spots.counts[p] && share != 0.0; e++) {
        if (Rows::sparse || e > 0) X.add(rows_of(p)[e], share * pulls[e], z);
        if (data.intercept != 0.0) z[m - 1] += share * pulls[e] * data.intercept;
      }
    }
  }

  // --- batches

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

  // The state of an active node before its noise: rounds slept and, where it speaks, its records.
  void wake(const Group& group, i64 p, int thread) const {
    Scratch& s = rounds.scratch[thread];
    const i64 node = group.nodes[p], t = group.t;
    const bool speaks = p < group.speakers;
    const i64* picks = nullptr;
    const i64 count = speaks ? pick(node, t, group.place + p, s.picks, s.taken, picks) : 0;
    for (i64 r = from; r < to; r++) {
      double* z = z_of(r, node);
      stand(Variant(job, r), t, spots.before[p], z, total_of(r, node), s.x, s.y, s.g);
      if (!speaks) continue;
      sum_units({node, picks, 0, units_of(data, node, count)}, r, s);
      const double push = factor(r, t, node), mean = push / double(noise.batch[node]);
      for (i64 j = 0; j < m; j++) s.g[j] = mean * s.g[j] - push * model.curvature * s.x[j];
      if (model.after)
        put(spots.held + (r * job.plan.widest + p) * m, s.g, m);
      else
        add_scaled(z, 1.0, s.g, m);
    }
  }

  void add_noise(const Group& group, i64 p, i64 first, i64 size, float* normals) const {
    const i64 node = group.nodes[p];
    const bool counted = !rounds.injected && noise.noisy[node];
    if (counted)
      make_normals(spots.keys[2 * p], spots.keys[2 * p + 1], first, size, normals, normals + BLOCK);
    for (i64 r = from; r < to; r++) {
      const double push = factor(r, group.t, node);
      const double* held = spots.held + (r * job.plan.widest + p) * m + first;
      if (model.after) add(r, node, first, size, 1.0, held, held + half);
      if (counted)
        add(r, node, first, size, push * noise.sigma[r * n + node], normals, normals + BLOCK);
      if (!rounds.injected) continue;
      const double* given = rounds.injected->noise + (group.place + p) * m + first;
      add(r, node, first, size, push, given, given + half);
    }
  }

  // rho/c_i (sqrt(a) eta_i - sum of eta / sqrt(a)) of each of a speakers.
  void add_shared(const Group& group, i64 first, i64 size, Scratch& s) const {
    const double root = std::sqrt(double(group.speakers));
    clear(s.sums, 2 * BLOCK);
    for (int again = 0; again < 2; again++)
      for (i64 p = 0; p < group.speakers; p++) {
        const i64 node = group.nodes[p];
        const u32* key = spots.pair_keys + 2 * p;
        if (!again) {
          make_normals(key[0], key[1], first, size, s.normals, s.normals + BLOCK);
          add_scaled(s.sums, 1.0, s.normals, 2 * BLOCK);
        }
        for (i64 r = from; r < to; r++) {
          const double loud = factor(r, group.t, node) * noise.shared[r * n + node];
          if (again)
            add(r, node, first, size, -loud / root, s.sums, s.sums + BLOCK);
          else
            add(r, node, first, size, loud * root, s.normals, s.normals + BLOCK);
        }
      }
  }

  void mix(const Group& group, i64 first, i64 size, double* mixed) const {
    const i64 k = group.size;
    for (i64 r = from; r < to; r++) {
      for (i64 p = 0; p < (group.flat ? 1 : k); p++) {
        clear(mixed + p * BLOCK, size);
        for (i64 q = 0; q < k; q++) {
          const double w = group.flat ? 1.0 / double(k) : group.W[p * k + q];
          if (w != 0.0) add_scaled(mixed + p * BLOCK, w, z_of(r, group.nodes[q]) + first, size);
        }
      }
      for (i64 p = 0; p < k; p++)
        put(z_of(r, group.nodes[p]) + first, mixed + (group.flat ? 0 : p * BLOCK), size);
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
      Scratch& s = rounds.scratch[thread];
      const auto speak = [&] {
        for (i64 p = 0; p < group.speakers; p++) add_noise(group, p, first, size, s.normals);
        if (shared) add_shared(group, first, size, s);
      };
      if (!model.after) speak();
      if (mixes) {
        mix(group, first, size, s.mixed);
        mix(group, half + first, size < m - half - first ? size : m - half - first, s.mixed);
      }
      if (model.after) speak();
    };
    in_parallel(rounds.pool, (half + BLOCK - 1) / BLOCK, block);
    if (!mixes && !model.after) bound(group);
  }
};

inline void run_rounds(Rounds& rounds) {
  with_rows(rounds.job->data, [&](auto X) { Loop<decltype(X)>{rounds}.run(); });
}

}  // namespace
}  // namespace sottovoce
