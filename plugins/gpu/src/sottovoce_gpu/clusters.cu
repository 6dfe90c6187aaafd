// ---- a team of runs in a cluster of thread blocks
//
// Runs that share schedule, draws and steps differ in how loud their noise is, and in their z. A cluster of blocks has all
// of them on its chips: a block has the same part of the coordinates of every run. Normals and rows are brought once for
// all runs, by warps that do nothing else, some places ahead of the others. A run has its own warps, one for each tile of
// four counters a lane, and no barrier: a warp sends what its coordinates add to the margins to all blocks, and goes on
// when what it needs from the others is there. While it waits, those of other runs work.
//
// What is drawn is a matter of the counter alone, and margins are summed tile by tile: how runs are laid out in clusters
// changes no bit.

#if !defined(__CUDACC__) || defined(CLUSTER)

#define TILE (4 * LANES)
#define BYGONE 128   // rounds of the tables that wait on the chip
#define MIXED 4      // nodes of a turn
#define SPREAD 16    // tiles whose sums every lane adds up by itself
#ifndef UPTO
#define UPTO MIXED            // nodes of the turns that there are, at the most
#endif
#ifndef FLAT
#define FLAT first.turn.flat  // whether a turn is a plain mean
#endif
#ifndef DEPTH
#define DEPTH ((u32)me.depth)  // places that wait on the chip
#endif
#ifndef TILES
#define TILES ((int)w.tiles)   // a run's warps in a block
#endif

#ifdef __CUDACC__
#define TOGETHER_BLOCKS CLUSTER
#define CLUSTERED __cluster_dims__(CLUSTER, 1, 1)
struct Barrier { u64 word; };
struct alignas(16) Quad { float x, y, z, w; };
INSIDE u32 on_chip_at(const void* p) { return (u32)__cvta_generic_to_shared(p); }
INSIDE int rank_of_block() {
  u32 found;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(found));
  return (int)found;
}
INSIDE void cluster_barrier() {
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}
INSIDE void set_barrier(Barrier* barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(on_chip_at(barrier)), "r"(arrivals) : "memory");
}
INSIDE void gates_are_made() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
// By those lanes that are to: without a branch, so that the compiler may order all of a turn as it likes.
INSIDE void arrive(Barrier* barrier, bool wanted) {
  asm volatile("{\n.reg .pred p;\nsetp.ne.u32 p, %1, 0;\n@p mbarrier.arrive.release.cta.shared::cta.b64 _, [%0];\n}" ::"r"(
                   on_chip_at(barrier)), "r"((u32)wanted) : "memory");
}
INSIDE void arrive_when_here(Barrier* barrier) {  // when all that this thread has requested is there
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(on_chip_at(barrier)) : "memory");
}
INSIDE void pass(Barrier* barrier, u32 parity) {
  asm volatile(
      "{\n.reg .pred open;\nWAIT:\nmbarrier.try_wait.parity.shared::cta.b64 open, [%0], %1;\n"
      "@!open bra WAIT;\n}" ::"r"(on_chip_at(barrier)), "r"(parity) : "memory");
}
#define ARRIVALS_OF_SUMS(tile_count) 1
INSIDE void expect(Barrier* barrier, int bytes, bool wanted) {  // the barrier opens when so much was sent
  asm volatile("{\n.reg .pred p;\nsetp.ne.u32 p, %2, 0;\n@p mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [%0], %1;\n}" ::
                   "r"(on_chip_at(barrier)), "r"(bytes), "r"((u32)wanted) : "memory");
}
typedef u32 Way;  // to another block's chip
INSIDE Way way_to(int rank) {
  u32 here = on_chip_at(ROOM), there;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(here), "r"(rank < CLUSTER ? rank : 0));
  return there - here;
}
INSIDE void send(Way way, float* to, Barrier* barrier, float x, bool wanted) {
  asm volatile("{\n.reg .pred p;\nsetp.ne.u32 p, %3, 0;\n"
               "@p st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.f32 [%0], %1, [%2];\n}" ::"r"(
                   way + on_chip_at(to)), "f"(x), "r"(way + on_chip_at(barrier)), "r"((u32)wanted) : "memory");
}
INSIDE void add_four(float* to, const float v[4], bool wanted) {
  asm volatile("{\n.reg .pred p;\nsetp.ne.u32 p, %5, 0;\n@p red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};\n}" ::"l"(
                   to), "f"(v[0]), "f"(v[1]), "f"(v[2]), "f"(v[3]), "r"((u32)wanted) : "memory");
}
INSIDE void warp_is_here() { __syncwarp(); }
template <typename T>
INSIDE T from_lane(T mine, int lane) { return __shfl_sync(0xffffffffu, mine, lane); }

// Sums of S numbers over the warp, sequentially beside each other in every block; a lane sends one to one block.
template <int S>
INSIDE void push_sums(Way way, const float u[4], float* to, Barrier* barrier) {
  const unsigned all = 0xffffffffu;
  int lane = threadIdx.x & 31, which = S == 1 ? lane >> 5 : S == 2 ? lane >> 4 : lane >> 3;
  bool high = (lane & 16) != 0, upper = (lane & 8) != 0;
  float sum = S == 1 ? u[0] + __shfl_xor_sync(all, u[0], 16)
                     : (high ? u[S > 2 ? 2 : 1] : u[0]) + __shfl_xor_sync(all, high ? u[0] : u[S > 2 ? 2 : 1], 16);
  if (S > 2) {
    float other = (high ? u[3] : u[1]) + __shfl_xor_sync(all, high ? u[1] : u[3], 16);
    sum = (upper ? other : sum) + __shfl_xor_sync(all, upper ? sum : other, 8);
  } else {
    sum += __shfl_xor_sync(all, sum, 8);
  }
#pragma unroll
  for (int step = 4; step > 0; step >>= 1) sum += __shfl_xor_sync(all, sum, step);
  bool sends = which < S && (S > 2 || !upper) && (S > 1 || !high) && (lane & 7) < CLUSTER;
  send(way, to + which, barrier, sum, sends);
}
#else
#include <sched.h>
#define TOGETHER_BLOCKS my_cluster
#define CLUSTERED
struct Barrier { u64 word; };  // how many must arrive, how many still must, and whether it has opened an odd number of times
struct alignas(16) Quad { float x, y, z, w; };
INSIDE int rank_of_block() { return (int)(my_block % my_cluster); }
INSIDE void cluster_barrier() { pthread_barrier_wait(my_cluster_barrier); }
INSIDE void set_barrier(Barrier* barrier, int arrivals) { barrier->word = (u64)arrivals << 16 | (u64)arrivals; }
INSIDE void gates_are_made() {}
INSIDE void arrive(Barrier* barrier, bool wanted) {
  if (!wanted) return;
  u64 was = __atomic_load_n(&barrier->word, __ATOMIC_SEQ_CST), next;
  do {
    next = was - 1;
    if ((next & 0xffff) == 0) next = (next ^ (1ull << 32)) | ((next >> 16) & 0xffff);
  } while (!__atomic_compare_exchange_n(&barrier->word, &was, next, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST));
}
INSIDE void arrive_when_here(Barrier* barrier) { arrive(barrier, true); }
INSIDE void pass(Barrier* barrier, u32 parity) {
  while ((u32)(__atomic_load_n(&barrier->word, __ATOMIC_SEQ_CST) >> 32) == parity) sched_yield();
}
#define ARRIVALS_OF_SUMS(tile_count) (tile_count)
INSIDE void expect(Barrier*, int, bool) {}  // everybody who sends arrives
typedef i64 Way;
INSIDE Way way_to(int rank) { return (rank - rank_of_block()) * my_room_bytes; }
INSIDE void add_four(float* to, const float v[4], bool wanted) {
  for (int e = 0; wanted && e < 4; e++) to[e] += v[e];
}
INSIDE void warp_is_here() {}
template <typename T>
INSIDE T from_lane(T mine, int) { return mine; }
template <int S>
INSIDE void push_sums(Way, const float u[4], float* to, Barrier* barrier) {
  for (int rank = 0; rank < my_cluster; rank++) {
    memcpy((char*)to + way_to(rank), u, 4 * S);
    arrive((Barrier*)((char*)barrier + way_to(rank)), true);
  }
}
#endif


struct Cluster {
  i64 runs, seats, tiles, helpers, depth;  // `seats`: runs that there is room for; `helpers`: warps that bring things
  const Run* run;
};

// What runs are meta about a place; of the first in a turn also who is in it and how they mix.
struct alignas(16) Meta {
  Place place;
  Numbers at;
  Slept slept;
  About about;
  Turn turn;
  float w[MIXED * MIXED];
  int nodes[MIXED];
};
#define PIECES 9  // of sixteen bytes, before the weights

struct Bygone { double s, P, Q; };

struct Player {  // a warp
  int m, half, n, features;
  int c, side;        // the first counter of this lane; where rows and z have their second side
  int tile_id, tile_count;  // which tile it has, and of how many
  int depth;
  bool first;         // of its run's in the block
  Barrier *full, *empty;
  Meta* meta;
  Bygone* bygone;
  float *rows, *noise;  // at this lane's place
  float *z, *loudness;  // of its run
  Barrier* heard;          // two, by turns
  float* sums;
};

struct Waiting { u32 slot, parity; };  // of a place, in the ring of those that wait

INSIDE Waiting after(const Player& me, Waiting at, int places) {
  at.slot += (u32)places;
  if (at.slot >= DEPTH) { at.slot -= DEPTH; at.parity ^= 1u; }
  return at;
}

INSIDE void load_eight(const float* from, int side, float out[8]) {
  Quad a = *(const Quad*)from, b = *(const Quad*)(from + side);
  out[0] = a.x; out[1] = a.y; out[2] = a.z; out[3] = a.w;
  out[4] = b.x; out[5] = b.y; out[6] = b.z; out[7] = b.w;
}

INSIDE void store_eight(float* to, int side, const float v[8]) {
  *(Quad*)to = {v[0], v[1], v[2], v[3]};
  *(Quad*)(to + side) = {v[4], v[5], v[6], v[7]};
}

// What the rounds slept add to the sum of a coordinate that became 0, or was no more, in one of them: `searched`, on chip.
INSIDE float fallen_asleep(const Run& run, const Player& me, const Place& place, float z) {
  if (BOXED || place.before <= place.t + (int)DEPTH - BYGONE) return searched(run.self, z, place.before, place.t);
  double size = fabs((double)z), phi = run.phi;
  int low = place.before, high = place.t;
  while (low < high) {
    int middle = (low + high) / 2;
    if (me.bygone[middle & (BYGONE - 1)].s * phi < size) low = middle + 1;
    else high = middle;
  }
  const Bygone &end = me.bygone[low & (BYGONE - 1)], &begin = me.bygone[place.before & (BYGONE - 1)];
  double part = size * (end.P - begin.P) - phi * (end.Q - begin.Q);
  return (float)(z > 0.0f ? -part : part);
}

INSIDE void add_gains(const Run& run, const Player& me, const Meta& meta, int node, const float z[8]) {
  float gain[8];
  if (LINEAR) {
#pragma unroll
    for (int e = 0; e < 8; e++) gain[e] = fmaf(z[e], -meta.at.weight, 0.0f);
  } else if (FROZEN) {
#pragma unroll
    for (int e = 0; e < 8; e++) gain[e] = meta.at.weight * primal(run, meta.at, z[e]);
  } else {
    const Slept slept = meta.slept;
    float middle = 0.5f * (slept.near_by + slept.far_off), nearest = INFINITE;
#pragma unroll
    for (int e = 0; e < 8; e++) {
      float over = soft(z[e], slept.far_off);
      float more = of_bits(bits_of(meta.at.weight) | (bits_of(over) & 0x80000000u));  // with its sign
      gain[e] = over == 0.0f ? 0.0f : fmaf(over, slept.rise, more);
      nearest = fminf(nearest, fabsf(fabsf(z[e]) - middle));
    }
    if (BOXED || nearest <= 0.5001f * (slept.far_off - slept.near_by) + 1e-6f * middle) {  // few lanes in a round
      u32 todo = 0;
#pragma unroll
      for (int e = 0; e < 8; e++) {
        float size = fabsf(z[e]);
        if (BOXED || (size > slept.near_by && size <= slept.far_off)) todo |= 1u << e;
      }
#pragma unroll 1
      for (; todo; todo &= todo - 1u) {
        u32 lowest = todo & (0u - todo);
        float mine = 0.0f;
#pragma unroll
        for (int e = 0; e < 8; e++) mine = lowest == 1u << e ? z[e] : mine;
        float found = fallen_asleep(run, me, meta.place, mine);
#pragma unroll
        for (int e = 0; e < 8; e++) gain[e] = lowest == 1u << e ? found : gain[e];
      }
    }
  }
  float* total = run.total + (i64)node * me.m + me.c;
  if (me.m % 8 == 0) {
    add_four(total, gain, me.c < me.half);
    add_four(total + me.half, gain + 4, me.c < me.half);
    return;
  }
#pragma unroll
  for (int e = 0; e < 8; e++) {
    int c = me.c + e % 4, j = c + e / 4 * me.half;
    if (c < me.half && j < me.m) total[e % 4 + e / 4 * me.half] += gain[e];
  }
}

template <int S>
INSIDE void margins_of_all(const Player& me, const float* sums, float u[4]) {  // all tiles', in their order
  const int wide = S <= 2 ? 2 : 4;
  int tiles = (me.half + TILE - 1) / TILE;
  u[0] = u[1] = u[2] = u[3] = 0.0f;
  if (LANES > 1 && tiles > SPREAD) {
    for (int at = LANE; at < tiles; at += LANES)
#pragma unroll
      for (int p = 0; p < S; p++) u[p] += sums[at * wide + p];
#pragma unroll
    for (int p = 0; p < S; p++) u[p] = warp_sum(u[p]);
    return;
  }
#pragma unroll
  for (int at = 0; at < tiles; at += 4 / wide) {
    Quad some = *(const Quad*)(sums + at * wide);
    u[0] += some.x;
    u[1] += some.y;
    if (wide == 4 || at + 1 < tiles) { u[2] += some.z; u[3] += some.w; }
  }
  if (wide == 2) {
    u[0] += u[2];
    u[1] += u[3];
  }
}

struct Next { int size, nodes[MIXED]; };

INSIDE Next who_is_next(const Player& me, Waiting at) {  // when all of them are there
  Next found;
  pass(me.full + at.slot, at.parity);
  found.size = me.meta[at.slot].turn.size;
  memcpy(found.nodes, me.meta[at.slot].nodes, sizeof(found.nodes));
#pragma unroll
  for (int p = 1; p < UPTO; p++) {
    Waiting other = after(me, at, p);
    if (p < found.size) pass(me.full + other.slot, other.parity);
  }
  return found;
}

// A turn of S nodes; while it waits for the margins it examines who is next.
template <int S>
INSIDE Next turn_of(const Run& run, const Player& me, Way way, const Next& now, Waiting at, u32 number, bool last) {
  const int solo = LANES > 1 ? 1 : S, wide = S <= 2 ? 2 : 4;  // a lane finds one slope
  float z[S][8], row[S][8], noise[S][8], u[4] = {0.0f, 0.0f, 0.0f, 0.0f};
  float *mine[S], *sums = me.sums + (number & 1) * 4 * (me.tile_count + 1);
  Barrier* heard = me.heard + (number & 1);
  u32 slot[S];
#pragma unroll
  for (int p = 0; p < S; p++) {
    slot[p] = after(me, at, p).slot;
    mine[p] = me.z + now.nodes[p] * 2 * me.side;
    load_eight(mine[p], me.side, z[p]);
    load_eight(me.rows + slot[p] * 2 * me.side, me.side, row[p]);
  }
#pragma unroll
  for (int p = 0; p < S; p++) {
    const Numbers numbers = me.meta[slot[p]].at;
    auto part = [&](float v) {  // of x: but for a factor, where that can wait
      return LINEAR ? v : BOXED ? primal(run, numbers, v) : soft(v, numbers.threshold);
    };
    float far = 0.0f;
#pragma unroll
    for (int e = 0; e < 4; e++) {
      u[p] += row[p][e] * part(z[p][e]);
      far += row[p][e + 4] * part(z[p][e + 4]);
    }
    u[p] = (u[p] + far) * (LINEAR ? -numbers.scale : BOXED ? 1.0f : numbers.scale);
  }
  const Meta& first = me.meta[at.slot];
  int speakers = first.turn.speakers;
  bool flat = FLAT && !AFTER;
  float w[S * S], push[S], loud[S], factor[solo];
  About about[solo];
#pragma unroll
  for (int k = 0; k < S * S; k++) w[k] = first.w[k];
#pragma unroll
  for (int p = 0; p < S; p++) {
    push[p] = me.meta[slot[p]].at.push;
    loud[p] = p < speakers ? push[p] * me.loudness[now.nodes[p]] : 0.0f;
    if (S <= 2) load_eight(me.noise + slot[p] * 2 * me.side, me.side, noise[p]);  // while there are registers
  }
#pragma unroll
  for (int k = 0; k < solo; k++) {
    int p = LANES > 1 ? (S == 3 ? LANE % 4 : LANE % S) : k;
    const Meta& meta = me.meta[after(me, at, p < S ? p : 0).slot];
    about[k] = meta.about;
    factor[k] = meta.place.count > 0 ? meta.at.push * me.loudness[me.n + meta.place.node] : 0.0f;
  }
  expect(heard, 4 * S * me.tile_count, me.first && LANE == 0);
  push_sums<S>(way, u, sums + wide * me.tile_id, heard);

#pragma unroll
  for (int p = 0; p < S; p++) {
    add_gains(run, me, me.meta[slot[p]], now.nodes[p], z[p]);
    if (S > 2) load_eight(me.noise + slot[p] * 2 * me.side, me.side, noise[p]);
#pragma unroll
    for (int e = 0; e < 8; e++) {
      noise[p][e] *= loud[p];
      if (!AFTER) z[p][e] += noise[p][e];
    }
  }
  warp_is_here();
#pragma unroll
  for (int k = 0; k < solo; k++) {
    int p = LANES > 1 ? LANE : k;
    arrive(me.empty + after(me, at, p < S ? p : 0).slot, p < S);
  }
  if (flat) {
#pragma unroll
    for (int e = 0; e < 8; e++) {
#pragma unroll
      for (int p = 1; p < S; p++) z[0][e] += z[p][e];
      z[0][e] *= 1.0f / (float)S;
    }
  } else {
#pragma unroll
    for (int e = 0; e < 8; e++) {
      float x[S];
#pragma unroll
      for (int q = 0; q < S; q++) {
        x[q] = AFTER ? noise[q][e] : 0.0f;
#pragma unroll
        for (int p = 0; p < S; p++) x[q] += w[q * S + p] * z[p][e];
      }
#pragma unroll
      for (int q = 0; q < S; q++) z[q][e] = x[q];
    }
  }
  Next next = {0, {0, 0, 0, 0}};
  if (!last) next = who_is_next(me, after(me, at, S));

  pass(heard, number >> 1 & 1);
  margins_of_all<S>(me, sums, u);
  float pull[S];
#pragma unroll
  for (int k = 0; k < solo; k++) {
    int p = LANES > 1 ? (S == 3 ? LANE % 4 : LANE % S) : k;
    float margin = p == 0 ? u[0] : p == 1 ? u[1] : p == 2 ? u[2] : u[3];
    float slope = clipped(run, margin, about[k]);
    pull[k] = factor[k] != 0.0f ? factor[k] * slope : 0.0f;
  }
  if (LANES > 1) {
    float own = pull[0];
#pragma unroll
    for (int p = 0; p < S; p++) pull[p] = from_lane(own, p);
  }
  if (flat) {
#pragma unroll
    for (int p = 0; p < S; p++)
#pragma unroll
      for (int e = 0; e < 8; e++) z[0][e] += pull[p] * (1.0f / (float)S) * row[p][e];
  } else {
#pragma unroll
    for (int q = 0; q < S; q++)
#pragma unroll
      for (int p = 0; p < S; p++) {
        float share = AFTER ? (q == p ? pull[p] : 0.0f) : w[q * S + p] * pull[p];
#pragma unroll
        for (int e = 0; e < 8; e++) z[q][e] += share * row[p][e];
      }
  }
#pragma unroll
  for (int q = 0; q < S; q++) {
    float found[8];
#pragma unroll
    for (int e = 0; e < 8; e++) {
      found[e] = flat ? z[0][e] : z[q][e];
      if (DESCENT && q < speakers) found[e] = shrunk(run, -push[q], found[e]);
    }
    store_eight(mine[q], me.side, found);
  }
  return next;
}

INSIDE void play(const Run& run, const Player& me, u32 places) {  // all turns of a run
  Way way = way_to(LANE & 7);
  Waiting at = {0u, 0u};
  Next now = who_is_next(me, at);
  for (u32 i = 0, number = 0; i < places; number++) {
    int size = now.size;
    i += (u32)size;
    bool last = i >= places;
    if (size == 2) now = turn_of<2>(run, me, way, now, at, number, last);
    else if (UPTO > 2 && size == 3) now = turn_of<3>(run, me, way, now, at, number, last);
    else if (UPTO > 2 && size == 4) now = turn_of<4>(run, me, way, now, at, number, last);
    else now = turn_of<1>(run, me, way, now, at, number, last);
    at = after(me, at, size);
  }
}

struct Coming { u32 k0, k1; i64 row; int node, t, turn, rank, size, speaks; i64 corner; };  // one place a lane

INSIDE Coming place_ahead(const Run& run, i64 place, i64 last) {
  const Place& there = run.places[place < last ? place : last];
  Coming found = {there.k0, there.k1, there.row, there.node, there.t, there.turn, 0, 0, 0, 0};
  return found;
}

INSIDE void turn_ahead(const Run& run, const int* noisy, Coming& of, i64 place) {
  const Turn turn = run.turns[of.turn];
  of.rank = (int)(place - turn.first);
  of.size = turn.size;
  of.corner = turn.corner;
  of.speaks = of.rank < turn.speakers && noisy[of.node];
}

// Tables of the rounds up to t; `known` is the last round that this warp requested.
INSIDE void fetch_bygone(const Run& run, const Player& me, int t, int& known) {
  int from = known > t - BYGONE ? known : t - BYGONE;
  from = from < -1 ? -1 : from;
  for (int k = LANE; k < 6 * (t - from); k += LANES) {
    int round = from + 1 + k / 6, which = k % 6;
    const double* table = which < 2 ? run.s : which < 4 ? run.P : run.Q;
    fetch_word((u32*)&me.bygone[round & (BYGONE - 1)] + which, (const u32*)(table + round) + which % 2);
  }
  known = t;
}

INSIDE void fetch_meta(const Run& run, Meta* meta, const Coming& of, i64 place) {
  for (int k = LANE; k < PIECES + MIXED * MIXED + MIXED; k += LANES) {
    const char* from = k < 3 ? (const char*)(run.places + place) + 16 * k
                     : k == 3 ? (const char*)(run.numbers + place)
                     : k < 6 ? (const char*)(run.slept + place) + 16 * (k - 4)
                     : k == 6 ? (const char*)(run.about + of.row)
                     : (const char*)(run.turns + of.turn) + 16 * (k - 7);
    bool wanted = k < 4 || (k < 6 ? !LINEAR && !FROZEN : k > 6 || of.row >= 0);
    int weight = k - PIECES, node = weight - MIXED * MIXED;
    if (weight < 0 && wanted) fetch_four((u32*)meta + 4 * k, (const u32*)from);
    if (weight >= 0 && node < 0 && of.rank == 0 && weight < of.size * of.size)
      fetch_word((u32*)meta->w + weight, (const u32*)(run.weights + of.corner) + weight);
    if (node >= 0 && of.rank == 0 && node < of.size)
      fetch_word((u32*)meta->nodes + node, (const u32*)&run.places[place + node].node);
  }
}

// What the runs of a block need at all places, tile by tile, by one of the `helpers` warps that see to it.
INSIDE void provide(const Run& run, const Player& me, const int* noisy, i64 begin, u32 places, int helper, int helpers,
                    int tiles) {
  i64 last = begin + places - 1;
  Coming now, soon = place_ahead(run, begin + LANE, last), later = place_ahead(run, begin + LANES + LANE, last);
  turn_ahead(run, noisy, soon, begin + LANE < last ? begin + LANE : last);
  const bool by_fours = me.features % 4 == 0 && me.half % 4 == 0;
  int mine = helper, known = -1;  // the next tile of all places that this warp sees to
  Waiting at = {0u, 1u};  // all slots are empty at first
  for (u32 i = 0; i < places; i++, mine -= tiles, at = after(me, at, 1)) {
    int lane = (int)(i % LANES);
    if (lane == 0) {
      now = soon;
      soon = later;
      turn_ahead(run, noisy, soon, begin + i + LANES + LANE < last ? begin + i + LANES + LANE : last);
      later = place_ahead(run, begin + i + 2 * LANES + LANE, last);
    }
    for (; mine < tiles; mine += helpers) {
      Coming of;
      of.k0 = from_lane(now.k0, lane);
      of.k1 = from_lane(now.k1, lane);
      of.row = from_lane(now.row, lane);
      of.speaks = from_lane(now.speaks, lane);
      pass(me.empty + at.slot, at.parity);
      int to = (int)at.slot * 2 * me.side + mine * TILE, c = me.c + mine * TILE;
#pragma unroll
      for (int side = 0; side < 2; side++) {
        int j = c + side * me.half;
        u32* there = (u32*)(me.rows + to + side * me.side);
        const u32* from = (const u32*)(run.X + of.row * me.features + j);
        if (of.row < 0 || c >= me.half) continue;
        if (by_fours && j < me.features) fetch_four(there, from);
        for (int e = 0; !by_fours && e < 4; e++)
          if (c + e < me.half && j + e < me.features) fetch_word(there + e, from + e);
      }
      if (mine == 0) {
        of.turn = from_lane(now.turn, lane);
        of.rank = from_lane(now.rank, lane);
        of.size = from_lane(now.size, lane);
        of.corner = from_lane(now.corner, lane);
        fetch_meta(run, me.meta + at.slot, of, begin + i);
        if (!LINEAR && !FROZEN && !BOXED) fetch_bygone(run, me, from_lane(now.t, lane), known);
      }
      arrive_when_here(me.full + at.slot);
      if (of.speaks) {
        const u32 keys[1][2] = {{of.k0, of.k1}};
        float drawn[1][4][2], out[8];
        normals_of<1, 4>(keys, (u32)c, 1u, drawn);
#pragma unroll
        for (int e = 0; e < 8; e++) out[e] = drawn[0][e % 4][e / 4];
        store_eight(me.noise + to, me.side, out);
      }
      warp_is_here();
      arrive(me.full + at.slot, LANE == 0);
    }
  }
  fetches_are_done();
}

KERNEL CLUSTERED BOUNDED clusters(const Cluster* all) {
  const Cluster w = all[BLOCK_NUMBER / TOGETHER_BLOCKS];
  int seats = (int)w.seats, tiles = TILES, runs = (int)w.runs, rank = rank_of_block();
  int which = WARP / tiles, tile = WARP % tiles;  // which run; from `seats` on it is none
  bool plays = which < runs, provides = which >= seats;
  const Run run = w.run[plays ? which : 0];
  Player me;
  me.m = COORDINATES;
  me.half = (me.m + 1) / 2;
  me.n = (int)run.n;
  me.features = FEATURES;
  me.side = tiles * TILE;
  me.tile_count = tiles * TOGETHER_BLOCKS;
  me.tile_id = rank * tiles + (provides ? 0 : tile);
  me.first = tile == 0;
  me.depth = (int)w.depth;
  int n = me.n, row = 2 * me.side, begins = 4 * LANE + (provides ? 0 : tile * TILE), of_sums = 8 * (me.tile_count + 1);
  int depth = (int)DEPTH, wide = (2 * n * seats + n + 3) / 4 * 4;
  me.c = rank * me.side + begins;
  me.meta = (Meta*)ROOM;
  me.bygone = (Bygone*)(me.meta + depth);
  me.full = (Barrier*)(me.bygone + (LINEAR ? 0 : BYGONE));
  me.empty = me.full + depth;
  Barrier* heard = me.empty + depth;
  float *sums = (float*)(heard + 2 * seats), *loudness = sums + seats * of_sums, *rows = loudness + wide;
  float *noise = rows + depth * row, *Z = noise + depth * row;
  int* noisy = (int*)(loudness + 2 * n * seats);
  me.rows = rows + begins;
  me.noise = noise + begins;
  me.z = Z + (provides ? 0 : which) * n * row + begins;
  me.loudness = loudness + (provides ? 0 : which) * 2 * n;
  me.heard = heard + (provides ? 0 : 2 * which);
  me.sums = sums + (provides ? 0 : which) * of_sums;

  for (int j = THREAD; j < 2 * depth * row; j += THREADS) rows[j] = 0.0f;
  for (int i = THREAD; i < n; i += THREADS) {
    noisy[i] = 0;
    for (int r = 0; r < runs; r++) {
      float loud = w.run[r].loud[i];
      loudness[r * 2 * n + i] = loud;
      loudness[r * 2 * n + n + i] = w.run[r].share[i];
      if (loud != 0.0f) noisy[i] = 1;
    }
  }
  if (THREAD == 0) {
    for (int d = 0; d < depth; d++) {
      set_barrier(me.full + d, tiles * (LANES + 1));
      set_barrier(me.empty + d, runs * tiles);
    }
    for (int k = 0; k < 2 * runs; k++) set_barrier(heard + k, ARRIVALS_OF_SUMS(me.tile_count));
    gates_are_made();
  }
  for (int i = 0; plays && i < n; i++) {
    float v[8];
    for (int e = 0; e < 8; e++) {
      int c = me.c + e % 4, j = c + e / 4 * me.half;
      v[e] = c < me.half && j < me.m ? run.z[(i64)i * me.m + j] : 0.0f;
    }
    store_eight(me.z + i * row, me.side, v);
  }
  BARRIER();
  if (me.features < me.m) {  // the column of ones
    int side = me.m - 1 >= me.half ? 1 : 0, c = me.m - 1 - side * me.half - rank * me.side;
    for (int d = THREAD; d < depth && c >= 0 && c < me.side; d += THREADS)
      rows[d * row + side * me.side + c] = (float)run.intercept;
  }
  cluster_barrier();
  i64 begin = run.turns[run.turns_first].first;
  const Turn end = run.turns[run.turns_last - 1];
  u32 places = (u32)(end.first + end.size - begin);
  if (plays) play(run, me, places);
  if (provides) provide(run, me, noisy, begin, places, WARP - seats * tiles, (int)w.helpers, tiles);
  for (int i = 0; plays && i < n; i++)
    for (int e = 0; e < 8; e++) {
      int c = me.c + e % 4, j = c + e / 4 * me.half;
      if (c < me.half && j < me.m) run.z[(i64)i * me.m + j] = me.z[i * row + e % 4 + e / 4 * me.side];
    }
  cluster_barrier();  // nobody leaves while others may send to it
}
#endif
