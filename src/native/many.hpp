// Rounds in which very many nodes speak, the same ones every time: no matrix, and nothing of size
// n^2 or T n.
//
// *Equally*: where a round ends with the mean of all, every node holds the same, and goes on
// holding it. x is made once, all records are read in the order of memory, and everybody's noise is
// summed as it is drawn. The state is one row.
//
// *Apart*: elsewhere every node has a row. A round is one pass over them: a row is made of its
// neighbors' messages of the round before, and becomes this round's message at once, while it is in
// the nearest cache. Normals of several nodes are made side by side: a model of 50 numbers would
// leave most lanes of a vector empty.
#pragma once
#include "gradient.hpp"

namespace sottovoce {
namespace {

// g += sum of loud * normal over nodes side by side.
inline double weighted(const double* RESTRICT loud, const float* RESTRICT normals, i64 count) {
  double total = 0.0;
#pragma omp simd reduction(+ : total)
  for (i64 p = 0; p < count; p++) total += loud[p] * double(normals[p]);
  return total;
}

// g += sum of c_i sigma_i nu_i over all nodes, BLOCK of them side by side, for all runs.
inline void sum_noise(const Job& job, i64 t, double* loud, double* g) {
  alignas(64) u32 k0[BLOCK] = {}, k1[BLOCK] = {};
  alignas(64) float cosines[BLOCK], sines[BLOCK];
  const Noise& noise = job.noise;
  const i64 n = job.nodes, m = job.m, R = job.runs, half = (m + 1) / 2;
  for (i64 first = 0; first < n; first += BLOCK) {
    const i64 size = n - first < BLOCK ? n - first : BLOCK;
    for (i64 r = 0; r < R; r++)
      for (i64 p = 0; p < size; p++)
        loud[r * BLOCK + p] = noise.scale[r * n + first + p] * noise.sigma[r * n + first + p];
    for (i64 p = 0; p < size; p++)
      threefry(noise.noise_key[0], noise.noise_key[1], u32(first + p), u32(t), k0[p], k1[p]);
    for (i64 j = 0; j < half; j++) {
      const auto of = [&](i64 p, u32& a, u32& b, u32& counter) {
        a = k0[p], b = k1[p], counter = u32(j);
      };
      make_normals_of(size, of, cosines, sines);
      for (i64 r = 0; r < R; r++) {
        g[r * m + j] += weighted(loud + r * BLOCK, cosines, size);
        if (half + j < m) g[r * m + half + j] += weighted(loud + r * BLOCK, sines, size);
      }
    }
  }
}

template <class Rows>
struct Many {
  const Job& job;
  Scratch& scratch;
  const Data& data = job.data;
  const Model& model = job.model;
  const Noise& noise = job.noise;
  const Rows X{job.data};
  const i64 R = job.runs, n = job.nodes, m = job.m;

  i64 draw(i64 i, i64 t) const {
    return draw_records(noise.sampler, noise.records_key, i, t,
                        data.offsets[i + 1] - data.offsets[i], noise.batch[i], noise.gap_scale[i],
                        scratch.picks, data.most, scratch.taken);
  }

  // g += factor * sum of clip(subgradient) over the records that node i draws in round t.
  void pull(i64 t, i64 i, i64 r, double factor, const double* x, double* g) const {
    const i64 count = draw(i, t);
    const Units some = {i, count == ALL ? nullptr : scratch.picks, 0, units_of(data, i, count)};
    clipped_sum(X, job, model.clip[r], some, x, scratch.g, scratch);
    add_scaled(g, factor, scratch.g, m);
  }

  // The same of records with one slope, of all nodes at one x: rows are read block by block.
  void pull_together(i64 t, Equal& a) const {
    i64 count = 0;
    const auto go = [&]() {
      for (i64 r = 0; r < R; r++) {
        std::memcpy(scratch.rows, a.rows, size_t(count) * sizeof(i64));
        add_block(X, data, model, model.clip[r], count, count, a.x + r * m, a.g + r * m, m,
                  a.factors + r * BATCH, scratch);
      }
      count = 0;
    };
    for (i64 i = 0; i < n; i++) {
      const i64 drawn = draw(i, t), units = units_of(data, i, drawn);
      for (i64 e = 0; e < units; e++) {
        a.rows[count] = row_of(data, data.offsets[i] + (drawn == ALL ? e : scratch.picks[e]));
        for (i64 r = 0; r < R; r++)
          a.factors[r * BATCH + count] = noise.scale[r * n + i] / double(noise.batch[i]);
        if (++count == BATCH) go();
      }
    }
    if (count) go();
  }

  void equal(Equal& a) const {
    for (i64 t = a.start; t <= a.stop; t++) {
      for (i64 r = 0; r < R; r++)
        stand(Variant(job, r), t, a.before, a.z + r * m, a.total + r * m, a.x + r * m, scratch.y,
              scratch.g);
      a.before = t;
      clear(a.g, R * m);
      if (model.loss.outputs == 1 && !data.starts)
        pull_together(t, a);
      else
        for (i64 i = 0; i < n; i++)
          for (i64 r = 0; r < R; r++)
            pull(t, i, r, noise.scale[r * n + i] / double(noise.batch[i]), a.x + r * m,
                 a.g + r * m);
      sum_noise(job, t, a.loud, a.g);
      for (i64 r = 0; r < R; r++) {
        const double push = Variant(job, r).push[t - 1];
        double* z = a.z + r * m;
        add_scaled(z, push / double(n), a.g + r * m, m);
        if (model.curvature != 0.0)
          add_scaled(z, -push / double(n) * model.curvature * sum_of(noise.scale + r * n, n),
                     a.x + r * m, m);
        if (model.descent) shrink(model, r, -push, z, m);
      }
    }
  }

  // --- apart

  static void sum_rows(const Apart& a, const double* s, double* sums, i64 n) {
    clear(sums, a.width);
    for (i64 i = 0; i < n && a.links->level != 0.0; i++)
      add_scaled(sums, 1.0, s + i * a.width, a.width);
  }

  // row = sum of w_ij s_j, or one's own where nobody mixes.
  static void gather(const Apart& a, bool mixes, const double* sums, const double* s, i64 i,
                     double* RESTRICT row) {
    const Links& links = *a.links;
    if (!mixes) return put(row, s + i * a.width, a.width);
    if (links.level != 0.0)
      for (i64 j = 0; j < a.width; j++) row[j] = links.level * sums[j];
    else
      clear(row, a.width);
    i64 e = links.starts[i];
    const i64 end = links.starts[i + 1];
    for (; e + 2 <= end; e += 2) {
      const double *RESTRICT one = s + links.places[e] * a.width,
                             *RESTRICT other = s + links.places[e + 1] * a.width;
      const double v = links.values[e], w = links.values[e + 1];
      for (i64 j = 0; j < a.width; j++) row[j] += v * one[j] + w * other[j];
    }
    if (e < end) add_scaled(row, links.values[e], s + links.places[e] * a.width, a.width);
  }

  // s <- W s, `times` times; the buffer that holds it comes first.
  void mix_all(Apart& a, bool mixes, i64 times) const {
    for (i64 turn = 0; turn < times && mixes; turn++) {
      for (i64 r = 0; r < R; r++) {
        const double* s = a.s + r * n * a.width;
        sum_rows(a, s, a.sums, n);
        for (i64 i = 0; i < n; i++) gather(a, true, a.sums, s, i, a.other + (r * n + i) * a.width);
      }
      swap(a);
    }
  }

  static void swap(Apart& a) {
    double* s = a.s;
    a.s = a.other, a.other = s;
  }

  // Noise of nodes first … last - 1, whose keys and counters are side by side.
  void add_noise(const Apart& a, i64 t, i64 first, i64 last, i64 chunk) const {
    alignas(64) u32 k0[BLOCK] = {}, k1[BLOCK] = {}, counters[BLOCK] = {};
    alignas(64) float cosines[BLOCK], sines[BLOCK];
    const i64 half = (m + 1) / 2;
    for (i64 low = 0; low < half; low += chunk) {
      const i64 size = half - low < chunk ? half - low : chunk;
      i64 at = 0;
      for (i64 i = first; i < last; i++) {
        u32 a0, a1;
        threefry(noise.noise_key[0], noise.noise_key[1], u32(i), u32(t), a0, a1);
        for (i64 j = 0; j < size; j++, at++) k0[at] = a0, k1[at] = a1, counters[at] = u32(low + j);
      }
      const auto of = [&](i64 p, u32& a, u32& b, u32& counter) {
        a = k0[p], b = k1[p], counter = counters[p];
      };
      make_normals_of(at, of, cosines, sines);
      for (i64 i = first; i < last; i++)
        for (i64 r = 0; r < R; r++) {
          const double loud =
              Variant(job, r).push[t - 1] * noise.scale[r * n + i] * noise.sigma[r * n + i];
          double* row = a.other + (r * n + i) * a.width;
          const i64 place = (i - first) * size, rest = m - half - low;
          if (loud == 0.0) continue;
          add_scaled(row + low, loud, cosines + place, size);
          add_scaled(row + half + low, loud, sines + place, size < rest ? size : rest);
        }
    }
  }

  // Whether the rows end where they began, and not in the other buffer.
  bool apart(Apart& a) const {
    const Links& links = *a.links;
    double* const here = a.s;
    const i64 half = (m + 1) / 2, chunk = half < BLOCK ? half : BLOCK, many = BLOCK / chunk;
    for (i64 t = a.start; t <= a.stop; t++) {
      const bool fused =
          t > a.start &&
          !model.after;  // messages of the round before are mixed where they are used
      if (fused) mix_all(a, links.mixes[t - 2], links.times - 1);
      const bool now = (fused && links.mixes[t - 2]) || (model.after && links.mixes[t - 1]);
      for (i64 r = 0; r < R && now; r++)
        sum_rows(a, a.s + r * n * a.width, a.sums + r * a.width, n);
      for (i64 first = 0; first < n; first += many) {
        const i64 last = first + many < n ? first + many : n;
        for (i64 i = first; i < last; i++)
          for (i64 r = 0; r < R; r++) wake(a, t, i, r, now, fused);
        add_noise(a, t, first, last, chunk);
        for (i64 i = first; i < last && model.after; i++)
          for (i64 r = 0; r < R; r++)
            shrink(model, r, -Variant(job, r).push[t - 1], a.other + (r * n + i) * a.width, m);
      }
      swap(a);
      a.before = t;
    }
    if (!model.after) {
      mix_all(a, links.mixes[a.stop - 1], links.times);
      for (i64 i = 0; i < n && model.descent; i++)
        for (i64 r = 0; r < R; r++)
          shrink(model, r, -Variant(job, r).push[a.stop - 1], a.s + (r * n + i) * a.width, m);
    }
    return a.s == here;
  }

  void wake(const Apart& a, i64 t, i64 i, i64 r, bool now, bool fused) const {
    const Variant v(job, r);
    double* row = a.other + (r * n + i) * a.width;
    const double push = v.push[t - 1] * noise.scale[r * n + i];
    gather(a, now, a.sums + r * a.width, a.s + r * n * a.width, i, row);
    if (fused && model.descent) shrink(model, r, -v.push[t - 2], row, m);
    const double* held = model.after ? a.s + (r * n + i) * a.width : row;
    stand(v, t, a.before, held, a.total + (r * n + i) * m, a.x, scratch.y, scratch.g);
    if (model.curvature != 0.0) add_scaled(row, -push * model.curvature, a.x, m);
    pull(t, i, r, push / double(noise.batch[i]), a.x, row);
  }
};

inline void run_equal(Equal& a) {
  with_rows(a.job->data, [&](auto X) { Many<decltype(X)>{*a.job, *a.scratch}.equal(a); });
}

inline bool run_apart(Apart& a) {
  return with_rows(a.job->data,
                   [&](auto X) { return Many<decltype(X)>{*a.job, *a.scratch}.apart(a); });
}

}  // namespace
}  // namespace sottovoce
