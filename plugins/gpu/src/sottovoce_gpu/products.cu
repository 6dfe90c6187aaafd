// Rounds after which everybody has the mean of all messages: z is one vector a run, and all runs' margins and pulls are
// matrix products. Arrays are coordinate by coordinate, the runs side by side: z[coordinate][run].

struct Marks {  // which rows each round of each cast uses
  i64 rounds, first, casts, nodes, rows, sampler, order_width;  // each cast's order begins so many places after the last
  const u64* keys;  // two words a cast
  const i64 *offsets, *order, *batch;
  const double* gap_scale;
  u8* marks;  // [round][cast][row], zero
};

KERNEL mark(const Marks* all) {
  const Marks w = *all;
  for (i64 at = BLOCK_NUMBER * THREADS + THREAD; at < w.rounds * w.casts * w.nodes; at += BLOCKS * THREADS) {
    i64 node = at % w.nodes, cast = at / w.nodes % w.casts, t = w.first + at / (w.nodes * w.casts);
    u8* marks = w.marks + at / w.nodes * w.rows;
    i64 begin = w.offsets[node], q = w.offsets[node + 1] - begin, b = w.batch[node];
    u32 k0, k1;
    threefry((u32)w.keys[2 * cast], (u32)w.keys[2 * cast + 1], (u32)node, (u32)t, k0, k1);
    const i64* order = w.order + w.order_width * cast;
#define ROW(record) order[begin + (record)]
    if (w.sampler == SAMPLER_FULL || (w.sampler == SAMPLER_POISSON && b == q)) {
      for (i64 e = 0; e < q; e++) marks[ROW(e)] = 1;
    } else if (w.sampler == SAMPLER_CYCLIC) {
      i64 from = (t - 1) % ((q + b - 1) / b) * b;
      for (i64 e = from; e < from + b && e < q; e++) marks[ROW(e)] = 1;
    } else if (w.sampler == SAMPLER_FIXED) {
      for (i64 e = 0; e < b; e++) {
        i64 last = q - b + e, pick = (i64)(uniform(k0, k1, (u32)e) * (double)(last + 1));
        if (marks[ROW(pick)]) pick = last;
        marks[ROW(pick)] = 1;
      }
    } else {
      double place = -1.0;
      for (u32 e = 0;; e++) {
        place += floor(log(uniform(k0, k1, e)) * w.gap_scale[node]) + 1.0;
        if (place >= (double)q) break;
        marks[ROW((i64)place)] = 1;
      }
    }
  }
}

struct Means {
  i64 n, m, outputs, rows, runs, casts, t, at, last, linear, boxed, descent, loss, softmax, marked;
  i64 dealings, mapped, features;
  double parameter, reach, intercept;
  const Numbers* numbers;    // [round][run]
  const float4_* h;          // phi, mu, lo, hi of a run
  const float *clip, *loud, *share;  // of a run; of a run and a node
  const int *cast, *owner;   // of a run; of a row in each partition, or in the one of all runs, -1 for nobody's
  const u64* keys;           // two words a cast
  const About* about;
  const u8* marks;
  float *z, *x, *sum, *u, *g;
  // where rows are mapped, x -> s (x - c), then shortened to the reach: s and c [feature][run], lengths before that
  // [row][run], what c adds to margins [output][run], and what shortening keeps from intercepts, by row and in all
  const float *scale, *centre, *lengths, *offset, *kept;
  float* rest;
};

INSIDE float mean_point(const Means& w, const Numbers& at, const float4_& h, float z) {
  if (w.linear) return -at.scale * z;
  float x = soft(z, at.threshold) * at.scale;
  return w.boxed ? bounded(x, h.c, h.d) : x;
}

INSIDE void mean_at_round(const Means& w, i64 coordinate, i64 run, float z) {  // x of the coming round, and its share of the sum
  const Numbers at = w.numbers[w.at * w.runs + run];
  i64 j = coordinate * w.runs + run;
  float x = mean_point(w, at, w.h[run], z);
  i64 feature = coordinate % (w.m / w.outputs);
  w.x[j] = w.mapped && feature < w.features ? w.scale[feature * w.runs + run] * x : x;
  w.sum[j] += at.weight * x;
}

INSIDE float mean_pull(const Means& w, i64 coordinate, i64 run) {  // what all records pull, in coordinates of the map
  float g = w.g[coordinate * w.runs + run];
  if (!w.mapped) return g;
  i64 wide = w.m / w.outputs, feature = coordinate % wide, output = coordinate / wide;
  if (feature == w.features) return w.kept ? g + (float)w.intercept * w.kept[output * w.runs + run] : g;
  if (w.centre) {
    float all = w.g[(output * wide + w.features) * w.runs + run] / (float)w.intercept;
    g -= w.centre[feature * w.runs + run] * all;
  }
  return w.scale[feature * w.runs + run] * g;
}

// Which row of so many numbers each: a division of long numbers takes longer than all else that is done with one of them.
INSIDE i64 row_of(i64 j, i64 wide) { return (j | wide) >> 32 ? j / wide : (i64)((u32)j / (u32)wide); }

KERNEL mean_start(const Means* all) {
  const Means w = *all;
  for (i64 j = BLOCK_NUMBER * THREADS + THREAD; j < w.m * w.runs; j += BLOCKS * THREADS) {
    i64 coordinate = row_of(j, w.runs);
    mean_at_round(w, coordinate, j - coordinate * w.runs, w.z[j]);
  }
}

// Margins to what a row pulls, u[output][row][run], in place; a single output's stays in a register.
template <bool MAPPED, bool SINGLE>
INSIDE void slopes_of(const Means& w, i64 j, i64 size) {
  const i64 outputs = SINGLE ? 1 : w.outputs, row = row_of(j, w.runs), run = j - row * w.runs;
  float only = 0.0f;
  auto get = [&](i64 k) { return SINGLE ? only : w.u[k * size + j]; };
  auto set = [&](i64 k, float v) {
    if (SINGLE) only = v;
    else w.u[k * size + j] = v;
  };
  int owner = w.owner[row * w.dealings + (w.dealings > 1 ? w.cast[run] : 0)];
  bool used = owner >= 0 && (!w.marked || w.marks[(i64)w.cast[run] * w.rows + row]);
  if (!used) {
    for (i64 k = 0; k < outputs; k++) {
      w.u[k * size + j] = 0.0f;
      if (MAPPED && w.kept) w.rest[k * size + j] = 0.0f;
    }
    return;
  }
  if (SINGLE) only = w.u[j];
  About about = w.about[row];
  float shorter = 1.0f;
  if (MAPPED) {
    float length = w.lengths[j], most = fminf(length, (float)w.reach);
    if (length > most) shorter = most / length;
    about.norm = sqrtf(most * most + (float)(w.intercept * w.intercept));
    for (i64 k = 0; k < outputs; k++) {
      float added = w.intercept ? (float)w.intercept * w.x[((k + 1) * (w.m / outputs) - 1) * w.runs + run] : 0.0f;
      float off = w.centre ? w.offset[k * w.runs + run] : 0.0f;
      set(k, shorter * (get(k) - added - off) + added);
    }
  }
  float top = -INFINITE, total = 0.0f, largest = 0.0f, squares = 0.0f;
  if (w.softmax) {
    for (i64 k = 0; k < outputs; k++) top = fmaxf(top, get(k));
    for (i64 k = 0; k < outputs; k++) total += expf(get(k) - top);
  }
  for (i64 k = 0; k < outputs; k++) {
    float u = get(k), own = (float)k == about.y ? 1.0f : 0.0f, found;
    if (w.softmax) found = expf(u - top) / total - own;
    else found = slope((int)w.loss, u, outputs > 1 ? 2.0f * own - 1.0f : about.y, (float)w.parameter);
    found *= about.weight;
    set(k, found);
    largest = fmaxf(largest, fabsf(found));
    squares += found * found;
  }
  float length = (outputs > 1 ? sqrtf(squares) : largest) * about.norm, clip = w.clip[run];
  float factor = w.share[run * w.n + owner] * (length <= clip ? 1.0f : clip / length);
  if (!(length < INFINITE)) factor = 0.0f;
  for (i64 k = 0; k < outputs; k++) {
    float pull = factor == 0.0f ? 0.0f : factor * get(k);
    w.u[k * size + j] = MAPPED ? shorter * pull : pull;
    if (MAPPED && w.kept) w.rest[k * size + j] = pull - shorter * pull;
  }
}

KERNEL mean_slopes(const Means* all) {
  const Means w = *all;
  i64 size = w.rows * w.runs;
  for (i64 j = BLOCK_NUMBER * THREADS + THREAD; j < size; j += BLOCKS * THREADS) {
    if (w.outputs == 1 && !w.mapped) slopes_of<false, true>(w, j, size);
    else if (w.outputs == 1) slopes_of<true, true>(w, j, size);
    else if (!w.mapped) slopes_of<false, false>(w, j, size);
    else slopes_of<true, false>(w, j, size);
  }
}

KERNEL mean_speak(const Means* all) {  // the mean of all messages, and x of the round after it
  Means w = *all;
  i64 half = (w.m + 1) / 2;
  for (i64 at = BLOCK_NUMBER * THREADS + THREAD; at < half * w.runs; at += BLOCKS * THREADS) {
    i64 c = row_of(at, w.runs), run = at - c * w.runs;
    const Numbers numbers = w.numbers[w.at * w.runs + run];
    float x = 0.0f, y = 0.0f;
    u32 n0 = (u32)w.keys[2 * w.cast[run]], n1 = (u32)w.keys[2 * w.cast[run] + 1];
    for (i64 i = 0; i < w.n; i++) {
      float loud = w.loud[run * w.n + i];
      if (loud == 0.0f) continue;
      u32 k0, k1;
      float cosine, sine;
      threefry(n0, n1, (u32)i, (u32)w.t, k0, k1);
      normal_pair(k0, k1, (u32)c, cosine, sine);
      x += loud * cosine;
      y += loud * sine;
    }
    Means next = w;
    next.at = w.at + 1;
    for (int side = 0; side < 2; side++) {
      i64 coordinate = c + side * half, j = coordinate * w.runs + run;
      if (coordinate >= w.m) continue;
      float z = w.z[j] + numbers.push * ((mean_pull(w, coordinate, run) + (side ? y : x)) / (float)w.n);
      if (w.descent) {
        const float4_ h = w.h[run];
        float eta = -numbers.push;
        z = bounded(soft(-z, eta * h.a) / (1.0f + eta * h.b), h.c, h.d);
      }
      w.z[j] = z;
      if (!w.last) mean_at_round(next, coordinate, run, z);
    }
  }
}
