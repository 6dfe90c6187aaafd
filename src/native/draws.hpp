// Counter-based draws: the normals of `sottovoce.streams` and the records of `privacy.sampling`.
//
// Threefry-2x32-13 bit for bit. Normals are Box-Muller in float32 by polynomials on the same words,
// in the same places, as `Streams.normals`, and agree with its float64 to 3e-7 relative over the
// whole range. No branches, 32-bit words and short loops over buffers in the nearest cache:
// compilers make vectors of these.
#pragma once
#include <cmath>
#include <cstring>

#include "job.hpp"

namespace sottovoce {
namespace {

constexpr u32 PARITY = 0x1BD11BDA;
constexpr u32 TAIL = 1 << 10;         // first words below this take 32 bits more
constexpr u32 NEAR_ONE = 0xB504F334;  // from this word on u has no exponent, and 1 - u is taken
constexpr int LANES = 64;             // gaps between records that are made side by side
constexpr i64 ALL = -1;               // instead of a count of records: every one of the node
constexpr u32 SMALL = 1 << 20;        // below this word the bits after it matter, too
constexpr u32 UNKNOWN = 0xFFFFFFFF;
constexpr float DOUBT =
    2e-6f;  // so close to a whole number, relatively, a gap is made by the library's logarithm
constexpr float FAR = 0x1p24f;

INLINE u32 turned(u32 x, int by) { return (x << by) | (x >> (32 - by)); }

INLINE void four(u32& x0, u32& x1, int a, int b, int c, int d) {
  x0 += x1, x1 = turned(x1, a) ^ x0;
  x0 += x1, x1 = turned(x1, b) ^ x0;
  x0 += x1, x1 = turned(x1, c) ^ x0;
  x0 += x1, x1 = turned(x1, d) ^ x0;
}

INLINE void threefry(u32 k0, u32 k1, u32 c0, u32 c1, u32& w0, u32& w1) {
  const u32 k2 = k0 ^ k1 ^ PARITY;
  u32 x0 = c0 + k0, x1 = c1 + k1;
  four(x0, x1, 13, 15, 26, 6);
  x0 += k1, x1 += k2 + 1;
  four(x0, x1, 17, 29, 16, 24);
  x0 += k2, x1 += k0 + 2;
  four(x0, x1, 13, 15, 26, 6);
  x0 += k0, x1 += k1 + 3;
  x0 += x1;
  w0 = x0, w1 = turned(x1, 17) ^ x0;
}

inline double uniform(u32 k0, u32 k1, u32 position) {
  u32 w0, w1;
  threefry(k0, k1, position, 0, w0, w1);
  return (double(u64(w0) << 20 | (w1 >> 12)) + 0.5) * 0x1p-52;
}

template <class To, class From>
INLINE To bits_of(From value) {
  To found;
  static_assert(sizeof(To) == sizeof(From), "of one size");
  std::memcpy(&found, &value, sizeof(To));
  return found;
}

// -2 ln u, u = (w + 1/2)/2^32, to 6e-7 relative.
INLINE float minus_two_log(u32 w) {
  const i32 bits = bits_of<i32>(float(w) + 0.5f);
  const i32 exponent =
      (bits - 0x3f3504f3) >> 23;  // so that the mantissa lies in [sqrt(1/2), sqrt(2))
  const float mantissa = bits_of<float>(bits - i32(u32(exponent) << 23));
  const bool near = w >= NEAR_ONE;
  const float f = near ? -(float(~w) + 0.5f) * 0x1p-32f : mantissa - 1.0f;
  const float octaves = near ? 0.0f : float(exponent - 32);
  float p = 0.202137783f;
  p = p * f - 0.324451685f;
  p = p * f + 0.345016658f;
  p = p * f - 0.39800331f;
  p = p * f + 0.499398172f;
  p = p * f - 0.666701198f;
  p = p * f + 1.00000727f;
  p = p * f - 1.99999988f;
  return p * f - 1.38629436112f * octaves;
}

// Cosine and sine of 2 pi w/2^32: an eighth of a turn either side of the nearest axis.
INLINE void direction(u32 w, float& x, float& y) {
  const u32 quarter = (w + (1u << 29)) >> 30;
  const float angle = float(i32(w - (quarter << 30))) * 1.46291807927e-9f, square = angle * angle;
  const float s =
      (((-0.000195018220f * square + 0.00833201645f) * square - 0.166666502f) * square + 1.0f) *
      angle;
  const float c =
      ((-0.00135794041f * square + 0.0416544196f) * square - 0.499998424f) * square + 1.0f;
  const bool odd = (quarter & 1) != 0;
  const float a = odd ? s : c, b = odd ? c : s;
  x = ((quarter + 1) & 2) != 0 ? -a : a;
  y = (quarter & 2) != 0 ? -b : b;
}

// Radii of the far tail, from 64 bits.
inline void refine(u32 k0, u32 k1, u32 counter, u32 w0, u32 w1, float& cosine, float& sine) {
  u32 finer, unused;
  threefry(k0, k1, counter, 1, finer, unused);
  const double u = (double(w0) + (double(finer) + 0.5) * 0x1p-32) * 0x1p-32;
  const float radius = float(std::sqrt(-2.0 * std::log(u)));
  float x, y;
  direction(w1, x, y);
  cosine = radius * x, sine = radius * y;
}

// Words to normals; whether one is in the far tail. In short loops: one loop over all of it takes
// twice the time.
inline bool box_muller(const u32* RESTRICT w0, const u32* RESTRICT w1, i64 count,
                       float* RESTRICT cosines, float* RESTRICT sines) {
  u32 least = 0xFFFFFFFF;
  for (i64 j = 0; j < count; j++) least = w0[j] < least ? w0[j] : least;
  for (i64 j = 0; j < count; j++) sines[j] = std::sqrt(minus_two_log(w0[j]));
  for (i64 j = 0; j < count; j++) {
    const float radius = sines[j];
    float x, y;
    direction(w1[j], x, y);
    cosines[j] = radius * x, sines[j] = radius * y;
  }
  return least < TAIL;
}

// Normals of `count` keys and counters, BLOCK at most, that `of` gives; up to 15 places after them
// are written, too.
template <class F>
INLINE void make_normals_of(i64 count, F of, float* RESTRICT cosines, float* RESTRICT sines) {
  alignas(64) u32 w0[BLOCK], w1[BLOCK];
  const i64 whole = (count + 15) / 16 * 16;
  u32 k0, k1, counter;
  for (i64 j = 0; j < whole; j++) {
    of(j, k0, k1, counter);
    threefry(k0, k1, counter, 0, w0[j], w1[j]);
  }
  if (!box_muller(w0, w1, whole, cosines, sines)) return;
  for (i64 j = 0; j < count; j++) {
    of(j, k0, k1, counter);
    if (w0[j] < TAIL) refine(k0, k1, counter, w0[j], w1[j], cosines[j], sines[j]);
  }
}

// The normals of a pair at counters first ….
inline void make_normals(u32 k0, u32 k1, i64 first, i64 count, float* cosines, float* sines) {
  const auto of = [=](i64 j, u32& a, u32& b, u32& counter) {
    a = k0, b = k1, counter = u32(first + j);
  };
  make_normals_of(count, of, cosines, sines);
}

inline void normal_rows(u32 k0, u32 k1, const i64* nodes, const i64* rounds, i64 count, i64 m,
                        float* out) {
  alignas(64) float pair[2 * BLOCK];
  const i64 half = (m + 1) / 2;
  for (i64 row = 0; row < count; row++) {
    u32 a, b;
    threefry(k0, k1, u32(nodes[row]), u32(rounds[row]), a, b);
    for (i64 first = 0; first < half; first += BLOCK) {
      const i64 size = half - first < BLOCK ? half - first : BLOCK;
      const i64 sines = size < m - half - first ? size : m - half - first;
      make_normals(a, b, first, size, pair, pair + BLOCK);
      std::memcpy(out + row * m + first, pair, size_t(size) * sizeof(float));
      if (sines > 0)
        std::memcpy(out + row * m + half + first, pair + BLOCK, size_t(sines) * sizeof(float));
    }
  }
}

// Floyd's algorithm; `taken` marks the chosen ones, and is clean before and after.
inline i64 draw_fixed(u32 k0, u32 k1, i64 q, i64 b, i64* records, bool* taken) {
  for (i64 j = 0; j < b; j++) {
    const i64 last = q - b + j;
    i64 pick = i64(uniform(k0, k1, u32(j)) * double(last + 1));
    if (taken[pick]) pick = last;
    taken[pick] = true;
    records[j] = pick;
  }
  for (i64 j = 0; j < b; j++) taken[records[j]] = false;
  return b;
}

// Gaps less 1 at counters from `first` on; UNKNOWN where more than 32 bits decide. Whether none is,
// and their sum.
inline bool make_gaps(u32 k0, u32 k1, i64 first, double gap_scale, u32* RESTRICT gaps, u32& sum) {
  const float scale = float(-0.5 * gap_scale);
  u32 unused[LANES], most = 0, total = 0;
  for (int j = 0; j < LANES; j++) threefry(k0, k1, u32(first + j), 0, gaps[j], unused[j]);
  for (int j = 0; j < LANES; j++) {
    float gap = minus_two_log(gaps[j]) * scale;
    gap = gap < FAR ? gap : FAR;
    const i32 whole = i32(gap);
    const float above = gap - float(whole), unsure = DOUBT * (gap + scale);
    const bool sure = (gaps[j] >= SMALL) & (above > unsure) & (above < 1.0f - unsure);
    const u32 found = sure ? u32(whole) : UNKNOWN;
    gaps[j] = found;
    most = found > most ? found : most;
    total += found;
  }
  sum = total;
  return most != UNKNOWN;
}

// Geometric gaps from one chosen record to the next; of many, LANES are made side by side.
inline i64 draw_poisson(u32 k0, u32 k1, i64 q, i64 b, double gap_scale, i64* records, i64 room) {
  double at = -1.0;
  i64 count = 0;
  u32 gaps[LANES];
  for (;;) {
    const bool many = 2 * b >= LANES && count + LANES <= room;
    u32 total = 0;
    if (many && make_gaps(k0, k1, count, gap_scale, gaps, total) &&
        at + double(total) + LANES < double(q)) {
      i64 place = i64(at);
      for (int j = 0; j < LANES; j++) records[count + j] = place += i64(gaps[j]) + 1;
      at = double(place), count += LANES;
      continue;
    }
    const i64 drawn = count;
    for (int j = 0; j < (many ? LANES : 1); j++) {
      const bool known = many && gaps[j] != UNKNOWN;
      at += 1.0 + (known ? double(gaps[j])
                         : std::floor(std::log(uniform(k0, k1, u32(drawn + j))) * gap_scale));
      if (at >= double(q)) return count;
      records[count++] = i64(at);
    }
  }
}

inline i64 draw_cyclic(i64 t, i64 q, i64 b, i64* records) {
  const i64 batches = (q + b - 1) / b, first = (t - 1) % batches * b,
            count = b < q - first ? b : q - first;
  for (i64 j = 0; j < count; j++) records[j] = first + j;
  return count;
}

// Writes the picks of a (node, round), and gives how many, or ALL.
inline i64 draw_records(Sampler sampler, const u32* key, i64 node, i64 t, i64 q, i64 b,
                        double gap_scale, i64* records, i64 room, bool* taken) {
  if (sampler == FULL || (sampler == POISSON && b == q)) return ALL;
  if (sampler == CYCLIC) return draw_cyclic(t, q, b, records);
  u32 k0, k1;
  threefry(key[0], key[1], u32(node), u32(t), k0, k1);
  if (sampler == FIXED) return draw_fixed(k0, k1, q, b, records, taken);
  return draw_poisson(k0, k1, q, b, gap_scale, records, room);
}

}  // namespace
}  // namespace sottovoce
