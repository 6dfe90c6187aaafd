// Algorithm 1 in CUDA C: draws from counters, eq. (6), lazy sums, slopes, and the rounds of a run in one thread block.
//
// One source, two compilers. NVRTC compiles it for the device; a C++ compiler makes a library of it in which a block's
// threads are threads of the host (or just one), a warp has one lane, and barriers are barriers: so that what runs on the
// device is tested, line for line, where there is none. Options in capitals (LINEAR, SPARSE, ...) are fields of `Run`,
// unless the compiler is meta what they are: for a device it is, and what a run has no use for is left out of its code.
//
// Numbers of a run are float32; sums over rounds come from float64 tables. A thread owns counters c, c + threads, ... and
// with each of them coordinates c and half + c of all nodes, the two normals of one block of Threefry. Coordinates meet
// in margins alone. Turns of few nodes with dense rows are those of `clusters.cu`, if a device has clusters.

typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

#ifdef __CUDACC__
#define KERNEL extern "C" __global__ void
#define INSIDE static __device__ __forceinline__
#define APART static __device__ __noinline__
#define BARRIER() __syncthreads()
#define THREAD ((int)threadIdx.x)
#define THREADS ((int)blockDim.x)
#define BLOCK_NUMBER ((i64)blockIdx.x)
#define BLOCKS ((i64)gridDim.x)
#define LANES 32
extern __shared__ float4 room[];
#define ROOM ((float*)room)
INSIDE float of_bits(u32 w) { return __uint_as_float(w); }
INSIDE u32 bits_of(float x) { return __float_as_uint(x); }
INSIDE u32 turned(u32 x, int by) { return __funnelshift_l(x, x, by); }
INSIDE float warp_sum(float v) {
  for (int step = 16; step > 0; step >>= 1) v += __shfl_xor_sync(0xffffffffu, v, step);
  return v;
}
INSIDE void sums_of_eight(float u[8], float* out, int stride, int count) {  // to out, out + stride, ...
  int lane = threadIdx.x & 31;
#pragma unroll
  for (int width = 4; width > 0; width >>= 1) {  // half of the sums to either half of the lanes, and so on
    bool low = (lane & (width * 4)) == 0;
#pragma unroll
    for (int q = 0; q < width; q++)
      u[q] = (low ? u[q] : u[q + width]) + __shfl_xor_sync(0xffffffffu, low ? u[q + width] : u[q], width * 4);
  }
  u[0] += __shfl_xor_sync(0xffffffffu, u[0], 2);
  u[0] += __shfl_xor_sync(0xffffffffu, u[0], 1);
  if ((lane & 3) == 0 && lane / 4 < count) out[lane / 4 * stride] = u[0];
}
INSIDE float root(float x) {  // of a number over 0, to the last bit but one
  float found;
  asm("sqrt.approx.ftz.f32 %0, %1;" : "=f"(found) : "f"(x));
  return found;
}
INSIDE float once(const float* from) { return __ldcg(from); }  // not to be kept in the nearest cache
INSIDE void fetch_word(u32* to, const u32* from) {  // from memory to the chip, meanwhile
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"((u32)__cvta_generic_to_shared(to)), "l"(from) : "memory");
}
INSIDE void fetch_four(u32* to, const u32* from) {  // sixteen bytes, past the nearest cache
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"((u32)__cvta_generic_to_shared(to)), "l"(from) : "memory");
}
INSIDE void fetches_are_done() { asm volatile("cp.async.wait_all;" ::: "memory"); }
#ifndef MAX_THREADS
#define MAX_THREADS 512
#endif
#define BOUNDED __launch_bounds__(MAX_THREADS, 1)
#define STRIDE MAX_THREADS  // threads, as the compiler knows them
#else
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#define KERNEL extern "C" void
#define INSIDE static inline
#define APART static
static thread_local int my_thread, my_threads;
static thread_local i64 my_block, my_blocks, my_cluster, my_room_bytes;
static thread_local float* my_room;
static thread_local pthread_barrier_t *my_barrier, *my_cluster_barrier;
#define BARRIER() (my_threads > 1 ? (void)pthread_barrier_wait(my_barrier) : (void)0)
#define THREAD my_thread
#define THREADS my_threads
#define BLOCK_NUMBER my_block
#define BLOCKS my_blocks
#define LANES 1
#define ROOM my_room
INSIDE float of_bits(u32 w) { float x; memcpy(&x, &w, 4); return x; }
INSIDE u32 bits_of(float x) { u32 w; memcpy(&w, &x, 4); return w; }
INSIDE u32 turned(u32 x, int by) { return (x << by) | (x >> (32 - by)); }
INSIDE float warp_sum(float v) { return v; }
INSIDE void sums_of_eight(float u[8], float* out, int stride, int count) {
  for (int q = 0; q < count; q++) out[q * stride] = u[q];
}
INSIDE float root(float x) { return sqrtf(x); }
INSIDE float once(const float* from) { return *from; }
INSIDE void fetch_word(u32* to, const u32* from) { *to = *from; }
INSIDE void fetch_four(u32* to, const u32* from) {
  if ((size_t)to % 16 != 0) abort();  // as on a device
  memcpy(to, from, 16);
}
INSIDE void fetches_are_done() {}
#define BOUNDED
#define STRIDE my_threads
#endif

#define INFINITE of_bits(0x7f800000u)
#define WARP (THREAD / LANES)
#define LANE (THREAD % LANES)
#define WARPS ((THREADS + LANES - 1) / LANES)

// ---- draws: `sottovoce.streams`, as `src/native/draws.hpp` makes them

#define PARITY 0x1BD11BDAu
#define TAIL 1024u

INSIDE void four(u32& x0, u32& x1, int a, int b, int c, int d) {
  x0 += x1; x1 = turned(x1, a) ^ x0;
  x0 += x1; x1 = turned(x1, b) ^ x0;
  x0 += x1; x1 = turned(x1, c) ^ x0;
  x0 += x1; x1 = turned(x1, d) ^ x0;
}

INSIDE void threefry(u32 k0, u32 k1, u32 c0, u32 c1, u32& x0, u32& x1) {  // 2x32, 13 rounds
  u32 k2 = k0 ^ k1 ^ PARITY;
  x0 = c0 + k0; x1 = c1 + k1;
  four(x0, x1, 13, 15, 26, 6);
  x0 += k1; x1 += k2 + 1u;
  four(x0, x1, 17, 29, 16, 24);
  x0 += k2; x1 += k0 + 2u;
  four(x0, x1, 13, 15, 26, 6);
  x0 += k0; x1 += k1 + 3u;
  x0 += x1; x1 = turned(x1, 17) ^ x0;
}

INSIDE double uniform(u32 k0, u32 k1, u32 position) {
  u32 w0, w1;
  threefry(k0, k1, position, 0u, w0, w1);
  return ((double)(((u64)w0 << 20) | (w1 >> 12)) + 0.5) * 2.220446049250313e-16;  // 2^-52
}

INSIDE float radius_of(u32 w) {  // sqrt(-2 ln u), u = (w + 1/2)/2^32
  int bits = (int)bits_of((float)w + 0.5f);
  int exponent = (bits - 0x3f3504f3) >> 23;  // so that the mantissa lies in [sqrt(1/2), sqrt(2))
  float mantissa = of_bits((u32)(bits - (exponent << 23)));
  float near_one = fmaf((float)(int)w, 2.3283064365386963e-10f, 1.1641532182693481e-10f);  // u - 1, where w is over 2^31
  float f = w >= 3037000500u ? near_one : mantissa - 1.0f, octaves = (float)(exponent - 32);
  float p = 0.202137783f;
  p = p * f - 0.324451685f;
  p = p * f + 0.345016658f;
  p = p * f - 0.39800331f;
  p = p * f + 0.499398172f;
  p = p * f - 0.666701198f;
  p = p * f + 1.00000727f;
  p = p * f - 1.99999988f;
  return root(p * f - 1.3862943611198906f * octaves);
}

INSIDE void direction_of(u32 w, float& x, float& y) {  // cosine and sine of 2 pi w/2^32
  u32 from = w + (1u << 29);  // quarters of the circle begin here: their number is in the two highest bits
  float angle = (float)(int)(w << 2) * 3.657295198167899e-10f, square = angle * angle;
  float s = (((-0.000195018220f * square + 0.00833201645f) * square - 0.166666502f) * square + 1.0f) * angle;
  float c = ((-0.00135794041f * square + 0.0416544196f) * square - 0.499998424f) * square + 1.0f;
  bool odd = (from & 0x40000000u) != 0u;
  x = of_bits(bits_of(odd ? s : c) ^ ((from + 0x40000000u) & 0x80000000u));
  y = of_bits(bits_of(odd ? c : s) ^ (from & 0x80000000u));
}

APART float tail_radius(u32 k0, u32 k1, u32 counter, u32 w0) {  // the last 2^-22 of the tail, from 64 bits
  u32 finer, other;
  threefry(k0, k1, counter, 1u, finer, other);
  double u = ((double)w0 + ((double)finer + 0.5) * 2.3283064365386963e-10) * 2.3283064365386963e-10;
  return (float)sqrt(-2.0 * log(u));
}

INSIDE void normal_pair(u32 k0, u32 k1, u32 counter, float& cosine, float& sine) {
  u32 w0, w1;
  threefry(k0, k1, counter, 0u, w0, w1);
  float radius = radius_of(w0), x, y;
  if (w0 < TAIL) radius = tail_radius(k0, k1, counter, w0);
  direction_of(w1, x, y);
  cosine = radius * x;
  sine = radius * y;
}

struct Said { float x, y; };  // of coordinates c and half + c

APART Said said_again(u32 k0, u32 k1, u32 counter) {
  Said found;
  normal_pair(k0, k1, counter, found.x, found.y);
  return found;
}

#ifndef PER
#define PER 2  // counters of a thread that are worked on together
#endif

// Of S nodes at counters c, c + threads, ...: no branches, so that their long chains of operations run side by side.
template <int S, int Q = PER>
INSIDE void normals_of(const u32 keys[S][2], u32 c, u32 step, float out[S][Q][2]) {
  u32 w[S][Q][2], least = 0xffffffffu;
#pragma unroll
  for (int p = 0; p < S; p++)
#pragma unroll
    for (int k = 0; k < Q; k++) threefry(keys[p][0], keys[p][1], c + (u32)k * step, 0u, w[p][k][0], w[p][k][1]);
#pragma unroll
  for (int p = 0; p < S; p++)
#pragma unroll
    for (int k = 0; k < Q; k++) {
      float x, y, radius = radius_of(w[p][k][0]);
      direction_of(w[p][k][1], x, y);
      out[p][k][0] = radius * x;
      out[p][k][1] = radius * y;
      least = w[p][k][0] < least ? w[p][k][0] : least;
    }
  if (least < TAIL)  // once in hundreds of thousands
#pragma unroll
    for (int p = 0; p < S; p++)
#pragma unroll
      for (int k = 0; k < Q; k++) {
        Said again = said_again(keys[p][0], keys[p][1], c + (u32)k * step);
        out[p][k][0] = again.x;
        out[p][k][1] = again.y;
      }
}

struct Normals {  // rows of normals, for tests and tables
  i64 rows, m, k0, k1;
  const int *nodes, *rounds;
  float* out;
};

KERNEL normal_rows(const Normals* all) {
  const Normals w = *all;
  i64 half = (w.m + 1) / 2;
  for (i64 at = BLOCK_NUMBER * THREADS + THREAD; at < w.rows * half; at += BLOCKS * THREADS) {
    i64 row = at / half, c = at % half;
    u32 k0, k1;
    float x, y;
    threefry((u32)w.k0, (u32)w.k1, (u32)w.nodes[row], (u32)w.rounds[row], k0, k1);
    normal_pair(k0, k1, (u32)c, x, y);
    w.out[row * w.m + c] = x;
    if (half + c < w.m) w.out[row * w.m + half + c] = y;
  }
}

// ---- who draws what: one thread a place, an active node in a round

struct Place {
  int node, t, before, count;  // `before`: the last round that its running sum has in it; `count` records
  i64 first;                   // ... whose rows begin here among the picks
  u32 k0, k1;                  // of its noise
  i64 row;                     // of its first record, or -1
  int turn, unused;            // which turn it is in
};

struct Draw {
  i64 places, rounds, nodes, each, first_round, speakers;  // `each`: places of a round, where all have as many
  i64 sampler, counting, filling, base, width;
  i64 noise0, noise1, records0, records1;
  const int *active, *starts;  // nodes of all rounds, end to end; where each begins
  const i64 *since, *offsets, *order, *batch, *firsts;  // `firsts`: where picks begin, if not at base + width place
  const double* gap_scale;
  Place* out;
  int* picks;
};

INSIDE i64 round_of(const Draw& w, i64 p) {  // that a place is in, from 0
  if (w.each) return p / w.each;
  i64 low = 0, high = w.rounds;
  while (high - low > 1) {
    i64 middle = (low + high) / 2;
    if (w.starts[middle] <= p) low = middle;
    else high = middle;
  }
  return low;
}

INSIDE int before_of(const Draw& w, int node, i64 r, i64 start) {  // the last round that its running sum has in it
  if (w.each == w.nodes && r > 0) return (int)(w.first_round + r - 1);
  for (i64 p = start - 1; p >= 0; p--)
    if (w.active[p] == node) return (int)(w.first_round + round_of(w, p));
  return (int)w.since[node] - 1;
}

INSIDE int drawn(const Draw& w, int node, int t, i64 first) {  // how many; and which, if they are to be written
  i64 q = w.offsets[node + 1] - w.offsets[node], b = w.batch[node];
  if (w.sampler == SAMPLER_FULL || (w.sampler == SAMPLER_POISSON && b == q)) return (int)q;
  if (!w.filling && w.sampler == SAMPLER_FIXED) return (int)b;
  u32 k0, k1;
  threefry((u32)w.records0, (u32)w.records1, (u32)node, (u32)t, k0, k1);
  int count = 0;
  if (w.sampler == SAMPLER_CYCLIC) {
    i64 batches = (q + b - 1) / b, from = (i64)(t - 1) % batches * b;
    count = (int)(b < q - from ? b : q - from);
    for (int e = 0; w.filling && e < count; e++) w.picks[first + e] = (int)(from + e);
  } else if (w.sampler == SAMPLER_FIXED) {  // Floyd
    for (; count < b; count++) {
      i64 last = q - b + count;
      int pick = (int)(uniform(k0, k1, (u32)count) * (double)(last + 1));
      for (int e = 0; e < count; e++)
        if (w.picks[first + e] == pick) { pick = (int)last; break; }
      w.picks[first + count] = pick;
    }
  } else {  // geometric gaps
    double at = -1.0;
    for (;;) {
      at += floor(log(uniform(k0, k1, (u32)count)) * w.gap_scale[node]) + 1.0;
      if (at >= (double)q) break;
      if (w.filling) w.picks[first + count] = (int)at;
      count++;
    }
  }
  for (int e = 0; w.filling && e < count; e++) {  // from records of the node to rows
    i64 place = w.offsets[node] + w.picks[first + e];
    w.picks[first + e] = (int)(w.order ? w.order[place] : place);
  }
  return count;
}

KERNEL draw_turns(const Draw* all) {
  const Draw w = *all;
  for (i64 p = BLOCK_NUMBER * THREADS + THREAD; p < w.places; p += BLOCKS * THREADS) {
    Place* at = w.out + p;
    i64 first = w.firsts ? w.firsts[p] : w.base + w.width * p;
    if (w.counting) {
      i64 r = round_of(w, p), start = w.each ? r * w.each : w.starts[r];
      int node = w.active[p], t = (int)(w.first_round + r);
      at->node = node; at->t = t; at->before = before_of(w, node, r, start);
      threefry((u32)w.noise0, (u32)w.noise1, (u32)node, (u32)t, at->k0, at->k1);
      at->count = p - start < w.speakers ? drawn(w, node, t, first) : 0;
    } else if (at->count) {
      drawn(w, at->node, at->t, first);
    }
    if (!w.filling) continue;
    i64 q = w.offsets[at->node + 1] - w.offsets[at->node];
    bool every = w.sampler == SAMPLER_FULL || (w.sampler == SAMPLER_POISSON && w.batch[at->node] == q);
    at->first = every ? w.offsets[at->node] : first;  // all rows, in order, stand first among the picks
    at->row = at->count ? w.picks[at->first] : -1;
  }
}

// ---- eq. (6), and what its numbers are in a round

struct float4_ { float a, b, c, d; };
// `weight`: of z, or with as_written of x, in its running sum; else what a coordinate at the threshold that was never 0 adds.
struct Numbers { float scale, threshold, weight, push; };
// Between two waking rounds; numbers of 48 bits are in two parts, so that one product and one sum lose nothing.
struct Slept { float rise, rise_less, fixed, fixed_less, near_by, far_off; i64 unused; };

struct Steps {
  i64 places, descent, frozen, linear;
  double phi, mu;
  const double *push, *gamma, *s, *A, *P, *Q;
  const Place* place;
  Numbers* numbers;
  Slept* slept;
};

KERNEL numbers(const Steps* all) {
  const Steps w = *all;
  for (i64 p = BLOCK_NUMBER * THREADS + THREAD; p < w.places; p += BLOCKS * THREADS) {
    const Place place = w.place[p];
    int t = place.t, before = place.before, at = w.frozen && before < t ? before : t - 1;
    double scale = w.descent ? -1.0 : 1.0 / (w.s[at] * w.mu + w.gamma[at]), dA = w.A[t] - w.A[before];
    Numbers found;
    found.scale = (float)scale;
    found.threshold = w.descent ? 0.0f : (float)(w.s[at] * w.phi);
    found.push = (float)w.push[t - 1];
    found.weight = (float)(w.frozen ? (w.linear ? scale * dA : dA) : w.P[t] - w.P[before]);
    double rise = w.P[t] - w.P[before], fixed = w.phi * (w.Q[t] - w.Q[before]);
    if (!w.linear && !w.frozen) found.weight = (float)(rise * (w.phi * w.s[t - 1]) - fixed);
    w.numbers[p] = found;
    if (w.linear || w.frozen) continue;
    Slept slept;
    slept.rise = (float)rise;
    slept.rise_less = (float)(rise - slept.rise);
    slept.fixed = (float)fixed;
    slept.fixed_less = (float)(fixed - slept.fixed);
    slept.near_by = (float)(w.phi * w.s[before < t ? before : t - 1]);
    slept.far_off = (float)(w.phi * w.s[t - 1]);
    slept.unused = 0;
    w.slept[p] = slept;
  }
}

// Nodes of a round that hear each other. `pair` says in which way: 1 for two, 2 for several, with a record each at the
// most, and 0 for any other.
struct Turn { int first, size, speakers, flat; i64 corner; int pair, unused; };
#define WORDS_OF_TURN ((int)(sizeof(Turn) / 4))

struct Turning {
  i64 rounds, each, together, paired, speakers, stage_nodes;  // `together`: turns of a round, where all have as many
  const int *starts, *heads, *pattern, *flat;
  const i64 *groups, *corners;
  Place* places;
  Turn* turns;
};

KERNEL turn(const Turning* all) {  // those of a round, one thread a round
  const Turning w = *all;
  for (i64 r = BLOCK_NUMBER * THREADS + THREAD; r < w.rounds; r += BLOCKS * THREADS) {
    int which = w.pattern[r], groups = (int)w.groups[which];
    i64 start = w.each ? r * w.each : w.starts[r], head = w.together ? r * w.together : w.heads[r];
    int size = (int)((w.each ? w.each : w.starts[r + 1] - start) / groups);
    for (int g = 0; g < groups; g++) {
      Turn turn;
      turn.first = (int)start + g * size;
      turn.size = size;
      i64 speak = w.speakers - (i64)g * size;
      turn.speakers = (int)(speak < 0 ? 0 : speak < size ? speak : size);
      turn.flat = w.flat[which];
      turn.corner = w.corners[which] + (i64)g * size * size;
      turn.pair = size == 2 && w.paired ? 1 : size <= w.stage_nodes ? 2 : 0;
      for (int p = 0; p < size; p++) {
        w.places[turn.first + p].turn = (int)head + g;
        if (w.places[turn.first + p].count > 1) turn.pair = 0;
      }
      turn.unused = 0;
      w.turns[head + g] = turn;
    }
  }
}

struct About { float y, norm, weight, unused; };  // of a row

struct Run {
  i64 n, m, features, turns_first, turns_last;
  i64 sparse, on_chip, fetched, linear, boxed, frozen, descent, after, loss;
  double phi, mu, lo, hi, parameter, clip, intercept;
  const Turn* turns;
  const Place* places;
  const Numbers* numbers;
  const Slept* slept;
  const float* weights;
  const int* picks;
  const float* X;
  const float* values;
  const int* indices;
  const i64* indptr;
  const About* about;
  const float *loud, *share;  // of a node: c_i sigma_i, and c_i over its batch
  const double *A, *P, *Q, *s, *gamma;
  float *z, *total, *pulls, *said;
  const Run* self;
};

#ifndef SPARSE
#define SPARSE run.sparse
#endif
#ifndef ON_CHIP
#define ON_CHIP run.on_chip
#endif
#ifndef LINEAR
#define LINEAR run.linear
#endif
#ifndef BOXED
#define BOXED run.boxed
#endif
#ifndef FROZEN
#define FROZEN run.frozen
#endif
#ifndef DESCENT
#define DESCENT run.descent
#endif
#ifndef AFTER
#define AFTER run.after
#endif
#ifndef LOSS
#define LOSS run.loss
#endif
#ifndef FETCHED
#define FETCHED run.fetched
#endif
#ifndef COORDINATES
#define COORDINATES ((int)run.m)
#endif
#ifndef FEATURES
#define FEATURES ((int)run.features)
#endif
INSIDE float soft(float z, float threshold) {  // of -z
  return fminf(fmaxf(z, -threshold), threshold) - z;
}

INSIDE float bounded(float x, float lo, float hi) {
  x = x < lo ? lo : x;
  return x > hi ? hi : x;
}

INSIDE float primal(const Run& run, const Numbers& at, float z) {
  if (LINEAR) return -at.scale * z;
  float x = soft(z, at.threshold) * at.scale;
  return BOXED ? bounded(x, (float)run.lo, (float)run.hi) : x;
}

INSIDE int first_round(const Run& run, double size, double bound, bool beyond, int before, int t) {
  int low = before, high = t;  // the first place in before ... t with s phi + bound den >= size (> where `beyond`)
  while (low < high) {
    int middle = (low + high) / 2;
    double level = run.s[middle] * run.phi + bound * (run.s[middle] * run.mu + run.gamma[middle]);
    if (level < size || (beyond && level == size)) low = middle + 1;
    else high = middle;
  }
  return low;
}

APART float searched(const Run* self, float z, int before, int t) {  // `steps._one_separable`
  const Run& run = *self;  // where it lies: a copy of everything would have to be made for a call that is rare
  double size = fabs((double)z), phi = run.phi, infinite = (double)INFINITE;
  double sign = z > 0.0f ? -1.0 : 1.0, top = z > 0.0f ? -run.lo : run.hi, bottom = z > 0.0f ? -run.hi : run.lo;
  int held = top <= 0.0 ? t : before;
  if (top > 0.0 && top < infinite) held = first_round(run, size, top, true, before, t);
  int freed = bottom > 0.0 ? first_round(run, size, bottom, false, before, t) : t;
  freed = freed > held ? freed : held;
  int alive = phi > 0.0 ? first_round(run, size, 0.0, false, before, t) : t;
  int end = alive > held ? alive : held;
  end = end < freed ? end : freed;
  double part = size * (run.P[end] - run.P[held]) - phi * (run.Q[end] - run.Q[held]);
  if (held > before) part += top * (run.A[held] - run.A[before]);
  if (bottom > 0.0) part += bottom * (run.A[t] - run.A[freed]);
  return (float)(sign * part);
}

INSIDE float awake(const Slept& slept, float size) {  // x was never 0
  return fmaf(size, slept.rise, -slept.fixed) + fmaf(size, slept.rise_less, -slept.fixed_less);
}

INSIDE float caught_up(const Run& run, const Place& place, const Numbers& at, const Slept& slept, float z) {
  if (LINEAR) return fmaf(z, -at.weight, 0.0f);  // what the rounds slept add to the running sum: rounded before it is added
  if (FROZEN) return fmaf(primal(run, at, z), at.weight, 0.0f);
  if (BOXED) return searched(run.self, z, place.before, place.t);
  float size = fabsf(z);
  if (size <= slept.near_by) return 0.0f;
  if (size <= slept.far_off) return searched(run.self, z, place.before, place.t);
  float part = awake(slept, size);
  return z > 0.0f ? -part : part;
}

INSIDE float shrunk(const Run& run, float eta, float z) {  // prox of eta h
  float den = 1.0f + eta * (float)run.mu;
  if (!BOXED && run.phi == 0.0) return z / den;
  return bounded(soft(-z, eta * (float)run.phi) / den, (float)run.lo, (float)run.hi);
}

// ---- slopes, one function of all rows of the table of losses

INSIDE float square(float x) { return x * x; }
INSIDE float sign(float x) { return x > 0.0f ? 1.0f : (x < 0.0f ? -1.0f : 0.0f); }

//FORMULAS

INSIDE float clipped(const Run& run, float u, const About& row) {
  float found = row.weight * slope((int)LOSS, u, row.y, (float)run.parameter);
  float size = fabsf(found) * row.norm, clip = (float)run.clip;
  if (size <= clip) return found;
  return size < INFINITE ? found * (clip / size) : 0.0f;  // what is not a number counts as nothing
}

// ---- a round
//
// On the chip, dense rows and z of a node have the first coordinates of all counters and then the second ones, as many as
// threads have room for: so that a thread finds its own at distances that the compiler knows. In memory they are as ever.

#define SIDE (PER * STRIDE)
#define ROW (2 * SIDE)
struct Own { int m, half, far, wide; };  // `far` and `wide`: where z has its second side and its next node

INSIDE bool padded(const Run& run) { return !SPARSE && ON_CHIP && FETCHED; }

INSIDE Own own_of(const Run& run) {
  int m = COORDINATES, half = (m + 1) / 2;
  return {m, half, padded(run) ? SIDE : half, padded(run) ? ROW : m};
}

INSIDE float entry(const Run& run, i64 row, i64 j) {
  return j < run.features ? once(run.X + row * run.features + j) : (float)run.intercept;
}

INSIDE Said said_by(const Run& run, const Place& place, const Numbers& at, const float* pulls, int c, int half) {
  Said said = {0.0f, 0.0f};
  if (!SPARSE)
    for (int e = 0; e < place.count; e++) {
      i64 row = run.picks[place.first + e];
      said.x += pulls[e] * entry(run, row, c);
      if (half + c < run.m) said.y += pulls[e] * entry(run, row, half + c);
    }
  float loud = at.push * run.loud[place.node];
  if (loud != 0.0f) {
    float x, y;
    normal_pair(place.k0, place.k1, (u32)c, x, y);
    said.x += loud * x;
    said.y += loud * y;
  }
  return said;
}

INSIDE float margin(const Run& run, const Own& own, const Numbers& at, const float* z, i64 row) {  // by a warp
  float u = 0.0f;
  if (SPARSE) {
    for (i64 e = run.indptr[row] + LANE; e < run.indptr[row + 1]; e += LANES)
      u += run.values[e] * primal(run, at, z[run.indices[e]]);
  } else {
    const float* c = run.X + row * run.features;
    for (int j = LANE; j < (int)run.features; j += LANES)
      u += c[j] * primal(run, at, z[j < own.half ? j : j - own.half + own.far]);
  }
  u = warp_sum(u);
  return run.intercept != 0.0 ? u + (float)run.intercept * primal(run, at, z[own.m - 1 - own.half + own.far]) : u;
}

// Any number of nodes with any number of records.
INSIDE void general(const Run& run, const Own& own, const Turn& turn, float* Z) {
  int m = own.m, half = own.half, far = own.far, wide = own.wide, size = turn.size;
  const Place* places = run.places + turn.first;
  const Numbers* at = run.numbers + turn.first;
  const Slept* slept = run.slept + turn.first;
  const float* W = run.weights + turn.corner;
  int base = 0;
  for (int p = 0; p < turn.speakers; p++) {
    const Place place = places[p];
    float factor = at[p].push * run.share[place.node];
    for (int e = 0; e < place.count; e++)
      if ((base + e) % WARPS == WARP) {
        i64 row = run.picks[place.first + e];
        float u = margin(run, own, at[p], Z + (i64)place.node * wide, row);
        if (LANE == 0) run.pulls[base + e] = factor * clipped(run, u, run.about[row]);
      }
    base += place.count;
  }
  BARRIER();
  for (int c = THREAD; c < half; c += THREADS) {
    bool both = half + c < m;
    float sum_x = 0.0f, sum_y = 0.0f;
    for (int p = 0, from = 0; p < size; p++) {
      const Place place = places[p];
      i64 mine = (i64)place.node * m + c, on_chip = (i64)place.node * wide + c;
      float x = Z[on_chip], y = both ? Z[on_chip + far] : 0.0f;
      run.total[mine] += caught_up(run, place, at[p], slept[p], x);
      if (both) run.total[mine + half] += caught_up(run, place, at[p], slept[p], y);
      if (p < turn.speakers && !AFTER) {
        Said said = said_by(run, place, at[p], run.pulls + from, c, half);
        x += said.x;
        y += said.y;
      }
      from += place.count;
      if (turn.flat) {
        sum_x += x;
        sum_y += y;
      } else {
        run.said[(i64)p * m + c] = x;
        if (both) run.said[(i64)p * m + half + c] = y;
      }
    }
    for (int q = 0; q < size; q++) {
      float x = sum_x / (float)size, y = sum_y / (float)size;
      if (!turn.flat) {
        x = y = 0.0f;
        for (int p = 0; p < size; p++) {
          x += W[q * size + p] * run.said[(i64)p * m + c];
          if (both) y += W[q * size + p] * run.said[(i64)p * m + half + c];
        }
      }
      i64 mine = (i64)places[q].node * wide + c;
      Z[mine] = x;
      if (both) Z[mine + far] = y;
    }
    for (int p = 0, from = 0; AFTER && p < turn.speakers; p++) {
      const Place place = places[p];
      Said said = said_by(run, place, at[p], run.pulls + from, c, half);
      i64 mine = (i64)place.node * wide + c;
      Z[mine] += said.x;
      if (both) Z[mine + far] += said.y;
      from += place.count;
    }
  }
  if (SPARSE) {  // what records add to few coordinates, after mixing
    BARRIER();
    for (int p = 0, from = 0; p < turn.speakers; p++) {
      const Place place = places[p];
      for (int e = 0; e < place.count; e++) {
        i64 row = run.picks[place.first + e], begin = run.indptr[row], end = run.indptr[row + 1];
        float pull = run.pulls[from + e];
        for (int q = 0; q < size; q++) {
          float share = AFTER ? (q == p ? 1.0f : 0.0f) : turn.flat ? 1.0f / (float)size : W[q * size + p];
          if (share == 0.0f || pull == 0.0f) continue;
          float* z = Z + (i64)places[q].node * wide;
          for (i64 at_entry = begin + THREAD; at_entry < end; at_entry += THREADS)
            z[run.indices[at_entry]] += share * pull * run.values[at_entry];
          if (THREAD == 0 && run.intercept != 0.0) z[m - 1] += share * pull * (float)run.intercept;
        }
        BARRIER();  // another row may have the same coordinates
      }
      from += place.count;
    }
  }
  for (int p = 0; DESCENT && p < turn.speakers; p++)
    for (int c = THREAD; c < m; c += THREADS) {
      int j = c;
      float* z = Z + (i64)places[p].node * wide;
      if (!SPARSE) {  // its own coordinates: they are the only ones that it has finished
        j = c < half ? c : -1;
        if (j >= 0 && half + j < m) z[far + j] = shrunk(run, -at[p].push, z[far + j]);
      }
      if (j >= 0) z[j] = shrunk(run, -at[p].push, z[j]);
    }
}

INSIDE void fetch_words(void* to, const void* from, int words) {
  for (int w = THREAD; w < words; w += THREADS) fetch_word((u32*)to + w, (const u32*)from + w);
}

template <int S>
INSIDE void noise_of(const float loud[S], const Place* place, int c, float out[S][PER][2]) {
  bool some = false;
  u32 keys[S][2];
#pragma unroll
  for (int p = 0; p < S; p++) {
    some = some || loud[p] != 0.0f;
    keys[p][0] = place[p].k0;
    keys[p][1] = place[p].k1;
  }
  if (some) {
    normals_of<S>(keys, (u32)c, (u32)STRIDE, out);
    return;
  }
#pragma unroll
  for (int p = 0; p < S; p++)
#pragma unroll
    for (int k = 0; k < PER; k++) out[p][k][0] = out[p][k][1] = 0.0f;
}

#define STAGE_NODES 32  // nodes of a turn that have a place on the stage

#ifndef SHORT  // what only `rounds` needs, and takes long to compile

// ---- two nodes with sparse rows
//
// What a turn needs is requested ahead of time, because a chain of loads takes longer than the turn: which turn it is
// seven turns before, who it is and with which numbers five. All of it waits on the chip, in rings; what was requested in
// a turn is there for all threads after the barrier of the next turn but one.

struct Slot { Place place[2]; Numbers at[2]; Slept slept[2]; float w[4]; };
struct alignas(16) Rings {
  Run run;
  Turn turns[8];
  Slot slots[8];
};

INSIDE bool streamed(const Run& run, const Turn& turn) { return SPARSE && turn.pair == 1; }

INSIDE void fetch_few(void* to, const void* from, int words) {  // by one warp
  for (int w = LANE; w < words; w += LANES) fetch_word((u32*)to + w, (const u32*)from + w);
}

INSIDE void fetch_turn(const Run& run, i64 at, Rings* rings) {
  if (at < run.turns_last) fetch_few(&rings->turns[at & 7], run.turns + at, WORDS_OF_TURN);
  else if (LANE == 0) rings->turns[at & 7].pair = 0;  // no more of them
}

INSIDE void fetch_slot(const Run& run, i64 at, Rings* rings) {
  const Turn& turn = rings->turns[at & 7];
  if (!streamed(run, turn)) return;
  Slot* slot = &rings->slots[at & 7];
  fetch_few(slot->place, run.places + turn.first, 2 * (int)(sizeof(Place) / 4));
  fetch_few(slot->at, run.numbers + turn.first, 2 * (int)(sizeof(Numbers) / 4));
  fetch_few(slot->w, run.weights + turn.corner, 4);
  if (!LINEAR && !FROZEN) fetch_few(slot->slept, run.slept + turn.first, 2 * (int)(sizeof(Slept) / 4));
}

INSIDE void fetch_ahead(const Run& run, i64 at, Rings* rings) {
  if (WARP == 0) fetch_slot(run, at + 5, rings);
  if (WARP == (WARPS > 1 ? 1 : 0)) fetch_turn(run, at + 7, rings);
}

// z and sums stream by, a tile at a time.
INSIDE void stream(const Run& run, i64 number, const Own& own, float* Z, const float* loudness, float* partial,
                   Rings* rings) {
  int m = own.m, half = own.half, n = (int)run.n;
  const Slot& slot = rings->slots[number & 7];
  const Numbers at_a = slot.at[0], at_b = slot.at[1];
  int a = slot.place[0].node, b = slot.place[1].node, speakers = rings->turns[number & 7].speakers;
  float *za = Z + (i64)a * m, *zb = Z + (i64)b * m, *ta = run.total + (i64)a * m, *tb = run.total + (i64)b * m;
  float loud[2] = {speakers > 0 ? at_a.push * loudness[a] : 0.0f, speakers > 1 ? at_b.push * loudness[b] : 0.0f};
  i64 row_a = slot.place[0].row, row_b = slot.place[1].row;
  fetches_are_done();
  BARRIER();  // z of the last turn is here
  if (WARP == 0 || WARPS == 1) {
    float u = row_a >= 0 ? margin(run, own, at_a, za, row_a) : 0.0f;
    if (LANE == 0) partial[0] = row_a >= 0 ? at_a.push * loudness[n + a] * clipped(run, u, run.about[row_a]) : 0.0f;
  }
  if (WARP == 1 || WARPS == 1) {
    float u = row_b >= 0 ? margin(run, own, at_b, zb, row_b) : 0.0f;
    if (LANE == 0) partial[1] = row_b >= 0 ? at_b.push * loudness[n + b] * clipped(run, u, run.about[row_b]) : 0.0f;
  }
  BARRIER();
  fetch_ahead(run, number, rings);
  float w00 = slot.w[0], w01 = slot.w[1], w10 = slot.w[2], w11 = slot.w[3];
  for (int first = THREAD; first < half; first += PER * THREADS) {
    float va[PER][2], vb[PER][2], oa[PER][2], ob[PER][2], noise[2][PER][2];
#pragma unroll
    for (int k = 0; k < PER; k++)
#pragma unroll
      for (int side = 0; side < 2; side++) {
        int c = first + k * THREADS, j = c + side * half;
        bool mine = c < half && j < m;
        va[k][side] = mine ? za[j] : 0.0f;
        vb[k][side] = mine ? zb[j] : 0.0f;
        oa[k][side] = mine ? once(ta + j) : 0.0f;
        ob[k][side] = mine ? once(tb + j) : 0.0f;
      }
    noise_of<2>(loud, slot.place, first, noise);
#pragma unroll
    for (int k = 0; k < PER; k++)
#pragma unroll
      for (int side = 0; side < 2; side++) {
        int c = first + k * THREADS, j = c + side * half;
        if (!(c < half && j < m)) continue;
        float x = va[k][side], y = vb[k][side];
        ta[j] = oa[k][side] + caught_up(run, slot.place[0], at_a, slot.slept[0], x);
        tb[j] = ob[k][side] + caught_up(run, slot.place[1], at_b, slot.slept[1], y);
        float said_a = loud[0] * noise[0][k][side], said_b = loud[1] * noise[1][k][side];
        if (!AFTER) { x += said_a; y += said_b; }
        float new_a = w00 * x + w01 * y, new_b = w10 * x + w11 * y;
        if (AFTER) { new_a += said_a; new_b += said_b; }
        za[j] = new_a;
        zb[j] = new_b;
      }
  }
  for (int p = 0; p < 2; p++) {  // what the records add to few coordinates, after mixing
    BARRIER();
    float pull = partial[p], share_a = AFTER ? (p == 0 ? 1.0f : 0.0f) : slot.w[p], share_b = AFTER ? (p == 1 ? 1.0f : 0.0f) : slot.w[2 + p];
    if (pull == 0.0f) continue;
    i64 row = p ? row_b : row_a, end = run.indptr[row + 1];
    for (i64 e = run.indptr[row] + THREAD; e < end; e += THREADS) {
      int j = run.indices[e];
      float value = pull * run.values[e];
      za[j] += share_a * value;
      zb[j] += share_b * value;
    }
    if (THREAD == 0 && run.intercept != 0.0) {
      za[m - 1] += share_a * pull * (float)run.intercept;
      zb[m - 1] += share_b * pull * (float)run.intercept;
    }
  }
  if (DESCENT) BARRIER();
  for (int j = THREAD; DESCENT && j < m; j += THREADS) {
    if (speakers > 0) za[j] = shrunk(run, -at_a.push, za[j]);
    if (speakers > 1) zb[j] = shrunk(run, -at_b.push, zb[j]);
  }
}

// Several nodes with a record each at the most. A thread has its own coordinates of all of them, a tile at a time.
struct alignas(16) Stage { Place place[STAGE_NODES]; Numbers at[STAGE_NODES]; Slept slept[STAGE_NODES]; About about[STAGE_NODES]; };

INSIDE float pulled(const Run& run, const Turn& turn, const float* loudness, const Stage* stage, int p, float u) {
  bool pulls = p < turn.speakers && stage->place[p].count > 0;
  float factor = stage->at[p].push * loudness[run.n + stage->place[p].node];
  return pulls ? factor * clipped(run, u, stage->about[p]) : 0.0f;
}

INSIDE void margins_on_stage(const Run& run, const Turn& turn, const Own& own, const float* Z, const float* loudness,
                             float* partial, Stage* stage) {
  int m = own.m, half = own.half, size = turn.size;
  if (SPARSE) {  // a warp each
    for (int p = WARP; p < size; p += WARPS) {
      i64 row = stage->place[p].row;
      float u = row >= 0 ? margin(run, own, stage->at[p], Z + (i64)stage->place[p].node * own.wide, row) : 0.0f;
      if (LANE == 0) stage->about[p].unused = pulled(run, turn, loudness, stage, p, u);
    }
    return;
  }
  for (int first = 0; first < size; first += 4) {  // all threads, four at a time
    float u[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    for (int tile = THREAD; tile < half; tile += PER * THREADS)
#pragma unroll
      for (int q = 0; q < 4; q++) {
        int p = first + q < size ? first + q : first;
        i64 row = first + q < size ? stage->place[p].row : -1;
        const float* z = Z + (i64)stage->place[p].node * own.wide;
#pragma unroll
        for (int k = 0; k < PER; k++)
#pragma unroll
          for (int side = 0; side < 2; side++) {
            int c = tile + k * THREADS, j = c + side * half;
            if (row >= 0 && c < half && j < m) u[q] += entry(run, row, j) * primal(run, stage->at[p], z[c + side * own.far]);
          }
      }
#pragma unroll
    for (int q = 0; q < 4; q++) {
      u[q] = warp_sum(u[q]);
      if (LANE == 0 && first + q < size) partial[(first + q) * WARPS + WARP] = u[q];
    }
  }
  BARRIER();
  for (int p = THREAD; p < size; p += THREADS) {
    float u = 0.0f;
    for (int w = 0; w < WARPS; w++) u += partial[p * WARPS + w];
    stage->about[p].unused = pulled(run, turn, loudness, stage, p, u);
  }
}

INSIDE void tile_on_stage(const Run& run, const Turn& turn, int tile, const Own& own, float* Z, const float* loudness,
                          const Stage* stage) {
  int m = own.m, half = own.half, size = turn.size;
  float sum[PER][2];
#pragma unroll
  for (int k = 0; k < PER; k++) sum[k][0] = sum[k][1] = 0.0f;
  for (int first = 0; first < size; first += 2) {
    int second = first + 1 < size ? first + 1 : first;
    const Place &a = stage->place[first], &b = stage->place[second];
    bool two = second > first;
    const Place both[2] = {a, b};
    float loud[2] = {first < turn.speakers ? stage->at[first].push * loudness[a.node] : 0.0f,
                     second < turn.speakers && two ? stage->at[second].push * loudness[b.node] : 0.0f};
    float pull_a = SPARSE ? 0.0f : stage->about[first].unused, pull_b = two && !SPARSE ? stage->about[second].unused : 0.0f;
    float noise[2][PER][2], ra[PER][2], rb[PER][2], oa[PER][2], ob[PER][2], va[PER][2], vb[PER][2];
    float *ta = run.total + (i64)a.node * m, *tb = run.total + (i64)b.node * m;
    float *za = Z + (i64)a.node * own.wide, *zb = Z + (i64)b.node * own.wide;
#pragma unroll
    for (int k = 0; k < PER; k++)
#pragma unroll
      for (int side = 0; side < 2; side++) {
        int c = tile + k * THREADS, j = c + side * half, on_chip = c + side * own.far;
        bool mine = c < half && j < m;
        ra[k][side] = mine && pull_a != 0.0f ? entry(run, a.row, j) : 0.0f;
        rb[k][side] = mine && pull_b != 0.0f ? entry(run, b.row, j) : 0.0f;
        oa[k][side] = mine ? once(ta + j) : 0.0f;
        ob[k][side] = mine && two ? once(tb + j) : 0.0f;
        va[k][side] = mine ? za[on_chip] : 0.0f;
        vb[k][side] = mine ? zb[on_chip] : 0.0f;
      }
    noise_of<2>(loud, both, tile, noise);
#pragma unroll
    for (int k = 0; k < PER; k++)
#pragma unroll
      for (int side = 0; side < 2; side++) {
        int c = tile + k * THREADS, j = c + side * half, on_chip = c + side * own.far;
        if (!(c < half && j < m)) continue;
        float x = va[k][side], y = vb[k][side];
        ta[j] = oa[k][side] + caught_up(run, a, stage->at[first], stage->slept[first], x);
        if (two) tb[j] = ob[k][side] + caught_up(run, b, stage->at[second], stage->slept[second], y);
        float said_a = pull_a * ra[k][side] + loud[0] * noise[0][k][side];
        float said_b = pull_b * rb[k][side] + loud[1] * noise[1][k][side];
        if (turn.flat && !AFTER) {
          sum[k][side] += x + said_a + (two ? y + said_b : 0.0f);
        } else {  // what is said stands where z stood, if it joins after mixing
          run.said[(i64)first * m + j] = AFTER ? x : x + said_a;
          if (two) run.said[(i64)second * m + j] = AFTER ? y : y + said_b;
          if (AFTER) {
            za[on_chip] = said_a;
            if (two) zb[on_chip] = said_b;
          }
        }
      }
  }
  const float* W = run.weights + turn.corner;
  for (int q = 0; q < size; q++) {
    float* z = Z + (i64)stage->place[q].node * own.wide;
#pragma unroll
    for (int k = 0; k < PER; k++)
#pragma unroll
      for (int side = 0; side < 2; side++) {
        int c = tile + k * THREADS, j = c + side * half, on_chip = c + side * own.far;
        if (!(c < half && j < m)) continue;
        float x = sum[k][side] / (float)size;
        if (!(turn.flat && !AFTER)) {
          x = AFTER ? z[on_chip] : 0.0f;
          for (int p = 0; p < size; p++) x += W[q * size + p] * run.said[(i64)p * m + j];
        }
        z[on_chip] = DESCENT && !SPARSE && q < turn.speakers ? shrunk(run, -stage->at[q].push, x) : x;
      }
  }
}

INSIDE void mix_on_stage(const Run& run, const Turn& turn, const Own& own, float* Z, const float* loudness, float* partial,
                  Stage* stage) {
  int m = own.m, half = own.half, size = turn.size;
  for (int p = THREAD; p < size; p += THREADS) {
    const About nobody = {0.0f, 0.0f, 0.0f, 0.0f};
    Place place = run.places[turn.first + p];
    stage->place[p] = place;
    stage->at[p] = run.numbers[turn.first + p];
    if (!LINEAR && !FROZEN) stage->slept[p] = run.slept[turn.first + p];
    stage->about[p] = place.row >= 0 ? run.about[place.row] : nobody;
  }
  BARRIER();
  margins_on_stage(run, turn, own, Z, loudness, partial, stage);
  BARRIER();
  for (int tile = THREAD; tile < half; tile += PER * THREADS) tile_on_stage(run, turn, tile, own, Z, loudness, stage);
  if (!SPARSE) return;
  const float* W = run.weights + turn.corner;
  for (int p = 0; p < turn.speakers; p++) {  // what records add to few coordinates, after mixing
    BARRIER();
    float pull = stage->about[p].unused;
    if (pull == 0.0f) continue;
    i64 row = stage->place[p].row, begin = run.indptr[row];
    int length = (int)(run.indptr[row + 1] - begin);
    for (int at = THREAD; at < length * size; at += THREADS) {
      int q = at / length;
      i64 e = begin + at % length;
      float share = AFTER ? (q == p ? 1.0f : 0.0f) : turn.flat ? 1.0f / (float)size : W[q * size + p];
      if (share != 0.0f) Z[(i64)stage->place[q].node * m + run.indices[e]] += share * pull * run.values[e];
    }
    for (int q = THREAD; q < size && run.intercept != 0.0; q += THREADS) {
      float share = AFTER ? (q == p ? 1.0f : 0.0f) : turn.flat ? 1.0f / (float)size : W[q * size + p];
      Z[(i64)stage->place[q].node * m + m - 1] += share * pull * (float)run.intercept;
    }
  }
  if (DESCENT) BARRIER();
  for (int p = 0; DESCENT && p < turn.speakers; p++)
    for (int j = THREAD; j < m; j += THREADS) {
      float* z = Z + (i64)stage->place[p].node * m;
      z[j] = shrunk(run, -stage->at[p].push, z[j]);
    }
}

KERNEL BOUNDED rounds(const Run* runs) {
  Rings* rings = (Rings*)ROOM;
  for (int w = THREAD; w < (int)(sizeof(Run) / 4); w += THREADS)
    ((u32*)&rings->run)[w] = ((const u32*)(runs + BLOCK_NUMBER))[w];
  BARRIER();
  const Run& run = rings->run;  // not in registers, which are for the work
  const Own own = own_of(run);
  int half = own.half, n = (int)run.n;
  Stage* stage = (Stage*)(rings + 1);
  float *partial = (float*)(stage + 1), *loudness = partial + STAGE_NODES * WARPS;
  float* Z = ON_CHIP ? loudness + (2 * n + 3) / 4 * 4 : run.z;
  for (int i = THREAD; i < n; i += THREADS) { loudness[i] = run.loud[i]; loudness[n + i] = run.share[i]; }
  for (int i = 0; ON_CHIP && i < n; i++)
    for (int at = THREAD; at < own.wide; at += THREADS) {
      int side = at >= own.far ? 1 : 0, c = at - side * own.far, j = c + side * half;
      Z[i * own.wide + at] = c < half && j < own.m ? run.z[(i64)i * own.m + j] : 0.0f;
    }
  BARRIER();
  i64 begin = run.turns_first;
  for (int k = 0; k < 7 && WARP == 0; k++) fetch_turn(run, begin + k, rings);
  fetches_are_done();
  BARRIER();
  for (int k = 0; k < 5 && WARP == 0; k++) fetch_slot(run, begin + k, rings);
  fetches_are_done();
  BARRIER();
  for (i64 at = begin; at < run.turns_last; at++) {
    const Turn turn = rings->turns[at & 7];
    if (streamed(run, turn)) {
      stream(run, at, own, Z, loudness, partial, rings);
      continue;
    }
    fetches_are_done();
    BARRIER();  // and z of the last turn is here
    fetch_ahead(run, at, rings);
    if (turn.pair == 2) mix_on_stage(run, turn, own, Z, loudness, partial, stage);
    else general(run, own, turn, Z);
  }
  BARRIER();
  for (int i = 0; ON_CHIP && i < n; i++)
    for (int j = THREAD; j < own.m; j += THREADS)
      run.z[(i64)i * own.m + j] = Z[i * own.wide + (j < half ? j : j - half + own.far)];
}

#endif

// ---- what the nodes of a run put out after round t

struct Averages {
  i64 runs, t;
  const Run* all;
  float* out;  // [run][node][coordinate]
};

KERNEL averages(const Averages* given) {
  const Averages w = *given;
  i64 which = BLOCK_NUMBER % w.runs, part = BLOCK_NUMBER / w.runs, parts = BLOCKS / w.runs;
  const Run run = w.all[which];
  float inverse = (float)(1.0 / run.A[w.t]);
  for (i64 j = part * THREADS + THREAD; j < run.n * run.m; j += parts * THREADS) {
    i64 node = j / run.m;
    const Place place = run.places[node];
    Slept slept;
    if (!LINEAR && !FROZEN) slept = run.slept[node];
    float more = place.before < place.t ? caught_up(run, place, run.numbers[node], slept, run.z[j]) : 0.0f;
    w.out[which * run.n * run.m + j] = (run.total[j] + more) * inverse;
  }
}

#ifndef __CUDACC__
// ---- blocks on the host, those of a cluster at once

typedef void (*Kernel)(const void*);
struct Worker {
  Kernel kernel;
  const void* given;
  int thread, threads;
  i64 block, blocks, cluster, room_bytes;
  float* room;
  pthread_barrier_t *barrier, *cluster_barrier;
};

static void* work(void* given) {
  Worker* w = (Worker*)given;
  my_thread = w->thread; my_threads = w->threads; my_block = w->block; my_blocks = w->blocks; my_cluster = w->cluster;
  my_room = w->room; my_room_bytes = w->room_bytes; my_barrier = w->barrier; my_cluster_barrier = w->cluster_barrier;
  w->kernel(w->given);
  return 0;
}

extern "C" int launch(Kernel kernel, i64 blocks, int threads, i64 room_bytes, const void* given, int cluster) {
  if (threads < 1 || threads > 64 || cluster < 1 || cluster > 8) return 1;
  room_bytes = (room_bytes + 63) / 64 * 64;
  float* memory = (float*)malloc((size_t)(room_bytes * cluster) + 64);
  for (i64 first = 0; first < blocks; first += cluster) {
    Worker workers[8 * 64];
    pthread_t ids[8 * 64];
    pthread_barrier_t barriers[8], all;
    pthread_barrier_init(&all, 0, (unsigned)(threads * cluster));
    for (int b = 0; b < cluster; b++) pthread_barrier_init(&barriers[b], 0, (unsigned)threads);
    for (int t = 0; t < threads * cluster; t++) {
      int b = t / threads;
      float* room = (float*)((char*)memory + b * room_bytes);
      workers[t] = {kernel, given, t % threads, threads, first + b, blocks, cluster, room_bytes, room, &barriers[b], &all};
    }
    for (int t = 1; t < threads * cluster; t++) pthread_create(&ids[t], 0, work, &workers[t]);
    work(&workers[0]);
    for (int t = 1; t < threads * cluster; t++) pthread_join(ids[t], 0);
    for (int b = 0; b < cluster; b++) pthread_barrier_destroy(&barriers[b]);
    pthread_barrier_destroy(&all);
  }
  free(memory);
  return 0;
}
#endif
