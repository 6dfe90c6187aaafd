// A driver of the three loops for the thread sanitizer, without Python: batches in parts and by
// nodes in several threads; edges and the mean of many nodes, which take one thread a run, as two
// runs side by side on the same records.
#include <cmath>
#include <cstdio>
#include <functional>
#include <thread>
#include <vector>

#include "pool.hpp"

namespace sottovoce {
namespace base {
extern const Kernels kernels;
}
}  // namespace sottovoce

using namespace sottovoce;

namespace {

constexpr i64 N = 6, Q = 120, M = 2100, T = 5;

struct Room {
  std::vector<std::vector<double>> blocks;
  template <class V = double>
  V* take(i64 count, double value = 0.0) {
    blocks.emplace_back(size_t(count), value);
    return reinterpret_cast<V*>(blocks.back().data());
  }
};

template <class V, class F>
std::vector<V> listed(i64 count, F of) {
  std::vector<V> found;
  for (i64 e = 0; e < count; e++) found.push_back(V(of(e)));
  return found;
}

// Six nodes of dense rows or of people with two rows each; in every round everybody is active, or
// two are.
struct World {
  Room room;
  std::vector<float> X =
      listed<float>(N * Q * M, [](i64 e) { return double(e * 2654435761 % 1000) / 3e4 - 0.016; });
  std::vector<i64> offsets, starts, begins, batch, zeros = std::vector<i64>(8);
  std::vector<i32> active, pattern = std::vector<i32>(size_t(T));
  bool flat[1] = {true}, noisy[N] = {true, true, true, true, true, true};
  Job job{};

  World(bool people, bool edges) {
    const i64 k = edges ? 2 : N, units = people ? Q / 2 : Q;
    offsets = listed<i64>(N + 1, [=](i64 i) { return i * units; });
    begins = listed<i64>(N * Q / 2 + 1, [](i64 p) { return 2 * p; });
    starts = listed<i64>(T + 1, [=](i64 t) { return t * k; });
    active = listed<i32>(T * k, [=](i64 e) { return edges ? (e / 2 + e % 2) % N : e % N; });
    batch = listed<i64>(N, [=](i64) { return edges ? 1 : units; });
    job.data.storage = DENSE32, job.data.values = X.data(), job.data.rows = N * Q,
    job.data.features = M;
    job.data.nodes = N, job.data.most = Q, job.data.longest = 2, job.data.offsets = offsets.data();
    job.data.y = room.take(N * Q, 1.0), job.data.norms = room.take(N * Q, 1.0);
    if (people) job.data.starts = begins.data();
    job.plan.starts = starts.data(), job.plan.corners = zeros.data();
    job.plan.active = active.data(), job.plan.pattern = pattern.data(), job.plan.flat = flat;
    job.plan.weights = room.take(N * N, 1.0 / double(k));
    job.plan.rounds = T, job.plan.widest = k, job.plan.speakers = k;
    job.model.phi = room.take(1), job.model.mu = room.take(1, 0.1), job.model.radius = room.take(1);
    job.model.lo = room.take(1, -HUGE_VAL), job.model.hi = room.take(1, HUGE_VAL);
    job.model.clip = room.take(1, 0.5), job.model.closed = true;
    job.model.loss = {LOGISTIC, 0.0, 1};
    double *A = room.take(T + 1), *P = room.take(T + 1);
    for (i64 t = 1; t <= T; t++) A[t] = double(t), P[t] = double(t) / 5.1;
    job.steps = {room.take(T, 1.0),
                 room.take(T, 1.0),
                 room.take(T, 5.0),
                 room.take(T, 1.0),
                 A,
                 P,
                 P,
                 zeros.data(),
                 T};
    job.noise.sampler = edges ? FIXED : FULL, job.noise.batch = batch.data(),
    job.noise.noisy = noisy;
    job.noise.gap_scale = room.take(N), job.noise.scale = room.take(N, 1.0),
    job.noise.sigma = room.take(N, 0.1);
    job.runs = 1, job.nodes = N, job.m = M, job.parts = 1, job.edges = edges;
  }
};

Scratch scratch_in(Room& r) {
  return {r.take(M),
          r.take(M),
          r.take(M),
          r.take<i64>(Q),
          r.take<bool>(Q),
          r.take<i64>(BATCH),
          r.take<i64>(BATCH + 1),
          r.take(BATCH),
          r.take(BATCH),
          r.take(4 * BATCH),
          r.take(M),
          r.take(1),
          r.take<i64>(1),
          r.take<float>(2 * BLOCK),
          r.take(N * BLOCK),
          r.take(2 * BLOCK),
          r.take(N)};
}

double sum(const double* values, i64 count) {
  double total = 0.0;
  for (i64 e = 0; e < count; e++) total += values[e];
  return total;
}

double rounds(const World& world, int threads, i64 parts) {
  Room r;
  Job job = world.job;
  job.parts = parts;
  std::vector<Scratch> scratch;
  for (int thread = 0; thread < threads; thread++) scratch.push_back(scratch_in(r));
  i64* since = r.take<i64>(N);
  for (i64 i = 0; i < N; i++) since[i] = 1;
  Pool pool(threads);
  Rounds all{};
  all.job = &job, all.pool = threads > 1 ? &pool : nullptr, all.scratch = scratch.data(),
  all.since = since;
  all.z = r.take(N * M), all.total = r.take(N * M), all.start = 1, all.stop = T;
  all.spots.before = r.take<i64>(N), all.spots.keys = r.take<u32>(N),
  all.spots.pair_keys = r.take<u32>(N);
  all.spots.parts = r.take(parts * (M + 512)), all.spots.counts = r.take<i64>(4),
  all.spots.since = r.take<i64>(N);
  all.spots.rows = r.take<i64>(2 * Q), all.spots.pulls = r.take(2 * Q),
  all.spots.edges = r.take<Edge>(64);
  base::kernels.run_rounds(all);
  return sum(all.z, N * M);
}

double mean(const World& world) {
  Room r;
  Scratch scratch = scratch_in(r);
  Equal all{};
  all.job = &world.job, all.scratch = &scratch, all.z = r.take(M), all.total = r.take(M),
  all.x = r.take(M);
  all.g = r.take(M), all.factors = r.take(BATCH), all.loud = r.take(BLOCK),
  all.rows = r.take<i64>(BATCH);
  all.start = 1, all.stop = T;
  base::kernels.run_equal(all);
  return sum(all.z, M);
}

double apart(const World& world) {
  Room r;
  Scratch scratch = scratch_in(r);
  const auto starts = listed<i64>(N + 1, [](i64 i) { return 2 * i; });
  const auto places = listed<i64>(2 * N, [](i64 e) { return (e / 2 + e % 2) % N; });
  const bool mixes[T] = {true, true, true, true, true};
  const Links ring = {starts.data(), places.data(), r.take(2 * N, 0.5), 0.0, mixes, 1};
  Apart all{};
  all.job = &world.job, all.links = &ring, all.scratch = &scratch, all.s = r.take(N * M),
  all.other = r.take(N * M);
  all.total = r.take(N * M), all.x = r.take(M), all.sums = r.take(M), all.width = M, all.start = 1,
  all.stop = T;
  base::kernels.run_apart(all);
  return sum(all.s, N * M);
}

// Whether two runs side by side end where one does.
bool same(const char* name, const std::function<double()>& run) {
  const double alone = run();
  double one = 0.0, other = 0.0;
  std::thread first([&] { one = run(); }), second([&] { other = run(); });
  first.join(), second.join();
  if (one == alone && other == alone && std::isfinite(alone) && alone != 0.0) return true;
  return std::printf("%s: %g alone, %g and %g side by side\n", name, alone, one, other), false;
}

}  // namespace

int main() {
  for (bool people : {false, true}) {
    const World world(people, false);
    for (i64 parts : {1, 5}) {
      const double one = rounds(world, 1, parts), four = rounds(world, 4, parts);
      if (one != four)
        return std::printf("another result in four threads: %g and %g\n", one, four), 1;
    }
    if (!same("mean", [&] { return mean(world); }) || !same("apart", [&] { return apart(world); }))
      return 1;
  }
  const World pairs(false, true);
  if (!same("edges", [&] { return rounds(pairs, 1, 1); })) return 1;
  std::puts("no races, and the same numbers in one thread and in several");
  return 0;
}
