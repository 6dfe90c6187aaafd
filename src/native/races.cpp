// A driver of the loops for the thread sanitizer, without Python: batches in parts and by nodes, in
// several threads.
#include <cmath>
#include <cstdio>
#include <cstring>
#include <vector>

#include "pool.hpp"

namespace sottovoce {
namespace base {
extern const Kernels kernels;
}
}  // namespace sottovoce

using namespace sottovoce;

namespace {

struct Numbers {
  std::vector<double> values;
  explicit Numbers(i64 count, double value = 0.0) : values(size_t(count), value) {}
  operator double*() { return values.data(); }
};

constexpr i64 N = 6, Q = 120, M = 2100, T = 5;

// Six nodes of dense rows, everybody active in every round; gives the sum of all z.
double run(int threads, i64 parts, bool people) {
  std::vector<float> X(size_t(N * Q * M));
  for (size_t e = 0; e < X.size(); e++) X[e] = float((e * 2654435761u) % 1000) / 3e4f - 0.016f;
  Numbers y(N * Q, 1.0), norms(N * Q, 1.0), phi(1), mu(1, 0.1), lo(1, -HUGE_VAL), hi(1, HUGE_VAL),
      radius(1), clip(1, 0.5);
  Numbers push(T, 1.0), a(T, 1.0), gamma(T, 5.0), s(T, 1.0), A(T + 1), P(T + 1), scale(N, 1.0),
      sigma(N, 0.1), gaps(N);
  Numbers weights(N * N, 1.0 / N), z(N * M), total(N * M);
  std::vector<i64> offsets, starts, begins, corners(1), groups(1, 1),
      batch(size_t(N), people ? Q / 2 : Q), since(size_t(N), 1);
  std::vector<i64> which(1);
  std::vector<i32> active, pattern(size_t(T), 0);
  bool flat[1] = {true}, noisy[N] = {true, true, true, true, true, true};
  for (i64 i = 0; i <= N; i++) offsets.push_back(i * (people ? Q / 2 : Q));
  for (i64 p = 0; p <= N * Q / 2; p++) begins.push_back(2 * p);
  for (i64 t = 0; t <= T; t++) starts.push_back(t * N);
  for (i64 t = 0; t < T; t++) {
    for (i64 i = 0; i < N; i++) active.push_back(i32(i));
    A[t + 1] = double(t + 1), P[t + 1] = double(t + 1) / 5.1;
  }
  Job job{};
  job.data.storage = DENSE32, job.data.values = X.data(), job.data.rows = N * Q,
  job.data.features = M, job.data.nodes = N;
  job.data.y = y, job.data.norms = norms, job.data.offsets = offsets.data(), job.data.most = Q,
  job.data.longest = 2;
  if (people) job.data.starts = begins.data();
  job.plan = {starts.data(),
              corners.data(),
              groups.data(),
              active.data(),
              pattern.data(),
              weights,
              flat,
              T,
              N,
              N,
              MATRIX,
              0.0};
  job.model = {SEPARABLE, phi,  mu,    lo,    hi,    radius,   clip, 0.0,
               nullptr,   true, false, false, false, LOGISTIC, 0.0,  1};
  job.steps = {push, a, gamma, s, A, P, P, which.data(), T};
  job.noise = {FULL,   batch.data(), gaps,  sigma, scale, nullptr,
               {1, 2}, {3, 4},       noisy, false, false};
  job.runs = 1, job.nodes = N, job.m = M, job.parts = parts;
  std::vector<std::vector<double>> rooms;
  const auto room = [&](i64 count) {
    rooms.emplace_back(size_t(count));
    return rooms.back().data();
  };
  const auto whole = [&](i64 count) { return reinterpret_cast<i64*>(room(count)); };
  std::vector<Scratch> scratch;
  for (int thread = 0; thread < threads; thread++)
    scratch.push_back({room(M), room(M), room(M), whole(Q), reinterpret_cast<bool*>(room(Q)),
                       whole(BATCH), whole(BATCH + 1), room(BATCH), room(BATCH), room(4 * BATCH),
                       room(M), room(1), whole(1), reinterpret_cast<float*>(room(BLOCK)),
                       room(N * BLOCK), room(2 * BLOCK), room(N)});
  Spots spots{};
  spots.before = whole(N), spots.keys = reinterpret_cast<u32*>(room(N)),
  spots.pair_keys = reinterpret_cast<u32*>(room(N));
  spots.parts = room(parts * (M + 512));
  Pool pool(threads);
  Rounds rounds = {
      &job, nullptr, threads > 1 ? &pool : nullptr, scratch.data(), spots, z, total, since.data(),
      1,    T};
  base::kernels.run_rounds(rounds);
  double sum = 0.0;
  for (double value : z.values) sum += value;
  return sum;
}

}  // namespace

int main() {
  for (i64 parts : {1, 5})
    for (bool people : {false, true}) {
      const double one = run(1, parts, people), four = run(4, parts, people);
      if (one != four)
        return std::printf("another result in four threads: %g and %g\n", one, four), 1;
    }
  std::puts("no races, and the same numbers in one thread and in four");
  return 0;
}
