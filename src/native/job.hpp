// What a run is to the kernels: plain arrays. `module.cpp` fills these structs from Python and
// checks every index.
#pragma once
#include <cstdint>

#if defined(_MSC_VER)
#define RESTRICT __restrict
#define PREFETCH(at) (void)(at)
#define INLINE __forceinline
#else
#define RESTRICT __restrict__
#define PREFETCH(at) __builtin_prefetch(at)
#define INLINE inline __attribute__((always_inline))  // of a loop that is to be made of vectors
#endif

namespace sottovoce {

using i64 = std::int64_t;
using i32 = std::int32_t;
using u64 = std::uint64_t;
using u32 = std::uint32_t;

constexpr i64 BLOCK =
    1024;  // counters whose normals are made at a time: two stretches of coordinates
constexpr i64 BATCH = 256;  // rows of a batch that are worked on together, at most
constexpr i64 NEAR_BYTES =
    1 << 16;  // bytes of dense rows that are read twice while they are in a near cache
constexpr i64 CHUNK = 128;          // counters of an edge whose normals are made at a time
constexpr i64 FAR_STATE = 1 << 21;  // numbers of z that, with their sums, leave a cache no room
constexpr i64 FEW = 32;  // records of a node for which the loop of edges is made, at most

enum Sampler { FIXED, POISSON, FULL, CYCLIC, INJECTED };
enum Kind { SEPARABLE, L2_BALL, L1_BALL, SIMPLEX, ENTROPY };
enum Averaging { MATRIX, CLIPPED, TRIMMED };
enum Loss {
  HINGE,
  SMOOTHED_HINGE,
  LOGISTIC,
  SQUARED_HINGE,
  SQUARED,
  HUBER,
  ABSOLUTE,
  QUANTILE,
  SOFTMAX
};
enum Storage { DENSE32, DENSE64, CSR32, CSR64 };

// Everybody's records. `weights`, `order` and `starts` may be null: all rows count the same, places
// are rows, units are rows.
struct Data {
  Storage storage;
  const void* values;
  const i32* indices;
  const i64* indptr;
  i64 rows, features, nodes;
  double intercept;
  const double *y, *norms, *weights;
  const i64 *offsets, *order, *starts;
  i64 entries, longest,
      most;  // stored numbers, rows of the longest unit, units of the largest node
};

// The schedule; pattern p's matrix begins at weights[corners[p]].
struct Plan {
  const i64 *starts, *corners;
  const i32 *active, *pattern;
  const double* weights;
  const bool* flat;  // whether all weights of a pattern are the same
  i64 rounds, widest, speakers;
  Averaging averaging;
  double bound;
};

struct Objective {
  Loss loss;
  double parameter;
  i64 outputs;
};

struct Model {
  Kind kind;
  const double *phi, *mu, *lo, *hi, *radius, *clip;  // a number for each variant
  double curvature;
  const double* centre;  // null for none
  bool closed, frozen, descent, after;
  Objective loss;
};

// a_t, γ_t, ιA_t of rounds 1 … T, and prefix sums; `which` says which of the sequences a variant
// has.
struct Steps {
  const double *push, *a, *gamma, *s, *A, *P, *Q;
  const i64* which;
  i64 T;
};

struct Noise {
  Sampler sampler;
  const i64* batch;
  const double *gap_scale, *sigma, *scale, *shared;
  u32 noise_key[2], records_key[2];
  const bool* noisy;
  bool pairs, level;
};

// What another generator drew for the rounds at hand; null where the kernels draw.
struct Injected {
  const double* noise;
  const i64 *records, *starts;
  const bool* every;
};

struct Job {
  Data data;
  Plan plan;
  Model model;
  Steps steps;
  Noise noise;
  i64 runs, nodes, m;
  i64 parts;   // of a node's records, summed sequentially in any number of threads
  bool edges;  // whether rounds of two nodes with few records may have the loop of their own
};

// Working memory of one thread.
struct Scratch {
  double *x, *y, *g;
  i64* picks;
  bool* taken;
  i64 *rows, *begins;
  double *u, *sizes, *known, *mean, *values;
  i64* places;
  float* normals;
  double *mixed, *sums, *heard;
};

// Of two nodes: what a message, its noise and its record count for in either one's state.
struct Edge {
  double w[2][2], loud[2][2], pull[2][2], slept[2];
  double *z[2], *total[2];
};

// Of a round: what each of its active nodes leaves for the steps after it.
struct Spots {
  i64* before;
  u32 *keys, *pair_keys;
  double *held, *wide, *parts, *pulls;
  i64 *counts, *rows, *since;
  Edge* edges;
};

struct Pool;
using Task = void (*)(void* context, i64 index, int thread);
void in_parallel(Pool* pool, i64 count, Task task, void* context);

// Rounds of one run of `run_rounds`.
struct Rounds {
  const Job* job;
  const Injected* injected;
  Pool* pool;
  Scratch* scratch;  // one for each thread
  Spots spots;
  double *z, *total;
  i64* since;
  i64 start, stop;
};

// W of very many nodes, as `network.wide.Wide` has it.
struct Links {
  const i64 *starts, *places;
  const double* values;
  double level;
  const bool* mixes;
  i64 times;
};

struct Equal {
  const Job* job;
  Scratch* scratch;
  double *z, *total, *x, *g, *factors, *loud;
  i64* rows;
  i64 before, start, stop;
};

struct Apart {
  const Job* job;
  const Links* links;
  Scratch* scratch;
  double *s, *other, *total, *x, *sums;
  i64 width, before, start, stop;
};

// The exact sums of pairs (node, round).
struct Sums {
  Data data;  // float32 on its grid
  const double *caps, *reach;
  Objective loss;
  i64 m, step, limit;
  double inverse, whole, slope, length;
  const i64 *base, *sizes, *starts, *picks;
  i64 pairs;
  const double* models;
  i64* totals;
};

struct SumsScratch {
  double *x, *wide, *u, *y, *spare, *sizes, *near, *slopes;
  i64 *rows, *begins, *places, *folded;
};

struct Dual {
  Data data;
  const i64* rows;
  i64 count;
  const double *y, *w, *steps, *low, *high;
  double curvature, phi, scale, lo, hi;
  bool entropy;
  double *s, *z, *x;
};

// One table of entry points for each instruction set.
struct Kernels {
  void (*run_rounds)(Rounds&);
  void (*run_equal)(Equal&);
  bool (*run_apart)(Apart&);
  void (*normal_rows)(u32 k0, u32 k1, const i64* nodes, const i64* rounds, i64 count, i64 m,
                      float* out);
  i64 (*draw_records)(Sampler, const u32* key, i64 node, i64 t, i64 q, i64 b, double gap_scale,
                      i64* out, i64 room, bool* taken);
  void (*slopes)(const Objective&, double* u, const double* y, i64 count, i64 stride,
                 double* spare);
  double (*exact_sums)(Sums&, SumsScratch&);
  void (*add_gaussian)(const u64* words, i64 count, const double* scales, const i64* rows,
                       i64 releases, i64 first, double* out, i64 m);
  void (*add_laplace)(const u64* words, i64 count, const double* scales, const i64* rows,
                      i64 releases, i64 first, double* out, i64 m);
  i64 (*poisson_gaps)(const u64* words, i64 count, i64 width, const double* scales,
                      const i64* sizes, double error, u64 small, i64* gaps);
  i64 (*released_rows)(const i64* sums, const i64* shifts, const double* noise, const double* error,
                       const double* grids, const i64* rows, const double* over, i64 count, i64 m,
                       double* out);
  void (*exp_of)(double* v, i64 count);
  double (*put_on_grid)(const double* x, i64 count, i64 columns, double* out);
  void (*dual_pass)(Dual&);
};

}  // namespace sottovoce
