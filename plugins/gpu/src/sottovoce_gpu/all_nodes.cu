// ---- everybody in all_nodes
//
// Where every round has everybody, with a record each, and their mean is where all go, all stand at the same place: a run
// is one z and one running sum, in registers, and the rows have the chip to themselves. Runs that share schedule, draws and
// steps run in one block: normals are drawn and rows brought once for all of them. Each does what it would do alone, to
// the last bit.

#if !defined(__CUDACC__) || defined(SEATS)

#ifndef SEATS
#define SEATS 5  // runs of a block, at the most
#endif

struct AllNodes {
  i64 runs;
  const Run* run;
};

struct TurnNodes { Place place[STAGE_NODES]; About about[STAGE_NODES]; Numbers at; Slept slept; };
struct alignas(16) Hall {
  TurnNodes turn_nodes[2];
  Run runs[SEATS];
  float pulls[SEATS][STAGE_NODES], loud[SEATS][STAGE_NODES], share[SEATS][STAGE_NODES], loudest[STAGE_NODES];
};

INSIDE void fetch_nodes(const Run& run, i64 at, TurnNodes* nodes) {
  if (at >= run.turns_last) return;
  i64 first = at * run.n;  // a round is a turn
  fetch_words(nodes->place, run.places + first, (int)run.n * (int)(sizeof(Place) / 4));
  fetch_words(&nodes->at, run.numbers + first, (int)(sizeof(Numbers) / 4));
  if (!LINEAR && !FROZEN) fetch_words(&nodes->slept, run.slept + first, (int)(sizeof(Slept) / 4));
}

INSIDE void fetch_rows(const Run& run, const TurnNodes* nodes, float* rows) {
  int half = (COORDINATES + 1) / 2;
  const bool by_fours = SIDE % 4 == 0 && FEATURES % 4 == 0 && half % 4 == 0;
  const int step = by_fours ? 4 : 1, pieces = FEATURES / step;
  for (int piece = THREAD; piece < (int)run.n * pieces; piece += STRIDE) {
    int p = piece / pieces, j = (piece - p * pieces) * step;
    i64 row = nodes->place[p].row;
    float* to = rows + p * ROW + (j < half ? j : j - half + SIDE);
    if (row >= 0 && by_fours) fetch_four((u32*)to, (const u32*)(run.X + row * FEATURES + j));
    else if (row >= 0) fetch_word((u32*)to, (const u32*)(run.X + row * FEATURES + j));
  }
}

// Margins of eight rows with one run's x, as far as this warp has them.
INSIDE void margins_of_eight(const float row[8][PER][2], const float x[PER][2], float* to, int count) {
  float u[8];
#pragma unroll
  for (int q = 0; q < 8; q++) {
    u[q] = 0.0f;
#pragma unroll
    for (int k = 0; k < PER; k++)
#pragma unroll
      for (int side = 0; side < 2; side++) u[q] = fmaf(row[q][k][side], x[k][side], u[q]);
  }
  sums_of_eight(u, to, WARPS, count < 8 ? count : 8);
}

KERNEL BOUNDED all_nodes(const AllNodes* all) {
  const AllNodes w = all[BLOCK_NUMBER];
  Hall* hall = (Hall*)ROOM;
  for (int at = THREAD; at < (int)w.runs * (int)(sizeof(Run) / 4); at += THREADS)
    ((u32*)hall->runs)[at] = ((const u32*)w.run)[at];
  BARRIER();
  const Run& run = hall->runs[0];  // what all of them share
  int m = COORDINATES, half = (m + 1) / 2, n = (int)run.n, runs = (int)w.runs, last_side = m - 1 >= half ? 1 : 0;
  float *partial = (float*)(hall + 1), *rows = partial + runs * STAGE_NODES * WARPS;
  for (int i = THREAD; i < n; i += THREADS) {
    hall->loudest[i] = 0.0f;
    for (int r = 0; r < runs; r++) {
      hall->loud[r][i] = hall->runs[r].loud[i];
      hall->share[r][i] = hall->runs[r].share[i];
      hall->loudest[i] = fmaxf(hall->loudest[i], fabsf(hall->loud[r][i]));
    }
  }
  float z[SEATS][PER][2], total[SEATS][PER][2];
#pragma unroll
  for (int r = 0; r < SEATS; r++)
#pragma unroll
    for (int k = 0; k < PER; k++)
#pragma unroll
      for (int side = 0; side < 2; side++) {
        int c = THREAD + k * STRIDE, j = c + side * half;
        bool mine = r < runs && c < half && j < m;
        z[r][k][side] = mine ? hall->runs[r].z[j] : 0.0f;
        total[r][k][side] = mine ? hall->runs[r].total[j] : 0.0f;
      }
  for (int j = THREAD; j < n * ROW; j += THREADS) {  // what is beside the rows stays
    bool constant = FEATURES < m && j % ROW == last_side * SIDE + m - 1 - last_side * half;
    rows[j] = constant ? (float)run.intercept : 0.0f;
  }
  fetch_nodes(run, run.turns_first, hall->turn_nodes + (run.turns_first & 1));
  fetches_are_done();
  BARRIER();
  for (i64 at = run.turns_first; at < run.turns_last; at++) {
    TurnNodes* nodes = hall->turn_nodes + (at & 1);
    fetch_rows(run, nodes, rows);
    for (int p = THREAD; p < n; p += THREADS)
      if (nodes->place[p].row >= 0) nodes->about[p] = run.about[nodes->place[p].row];
    fetch_nodes(run, at + 1, hall->turn_nodes + ((at + 1) & 1));
    float said[SEATS][PER][2], push = nodes->at.push;
#pragma unroll
    for (int r = 0; r < SEATS; r++)
#pragma unroll
      for (int k = 0; k < PER; k++) said[r][k][0] = said[r][k][1] = 0.0f;
    for (int p = 0; p < n; p += 2) {
      int second = p + 1 < n ? p + 1 : p;
      const Place both[2] = {nodes->place[p], nodes->place[second]};
      float noise[2][PER][2], loudest[2] = {hall->loudest[both[0].node], hall->loudest[both[1].node]};
      noise_of<2>(loudest, both, THREAD, noise);
#pragma unroll
      for (int r = 0; r < SEATS; r++) {
        if (r >= runs) continue;
        float one = push * hall->loud[r][both[0].node], other = second > p ? push * hall->loud[r][both[1].node] : 0.0f;
#pragma unroll
        for (int k = 0; k < PER; k++)
#pragma unroll
          for (int side = 0; side < 2; side++)
            said[r][k][side] = fmaf(other, noise[1][k][side], fmaf(one, noise[0][k][side], said[r][k][side]));
      }
    }
    fetches_are_done();
    BARRIER();
    for (int first = 0; first < n; first += 8) {
      float row[8][PER][2];
#pragma unroll
      for (int q = 0; q < 8; q++)
#pragma unroll
        for (int k = 0; k < PER; k++)
#pragma unroll
          for (int side = 0; side < 2; side++)
            row[q][k][side] = first + q < n ? rows[(first + q) * ROW + THREAD + k * STRIDE + side * SIDE] : 0.0f;
#pragma unroll
      for (int r = 0; r < SEATS; r++) {
        if (r >= runs) continue;
        float x[PER][2];
#pragma unroll
        for (int k = 0; k < PER; k++) {
          x[k][0] = primal(hall->runs[r], nodes->at, z[r][k][0]);
          x[k][1] = primal(hall->runs[r], nodes->at, z[r][k][1]);
        }
        margins_of_eight(row, x, partial + (r * STAGE_NODES + first) * WARPS + WARP, n - first);
      }
    }
    BARRIER();
    for (int q = THREAD; q < n * runs; q += THREADS) {
      int r = q / n, p = q - r * n;
      const Run& run = hall->runs[r];
      float u = 0.0f;
      for (int part = 0; part < WARPS; part++) u += partial[(r * STAGE_NODES + p) * WARPS + part];
      bool pulls = nodes->place[p].count > 0;
      float factor = push * hall->share[r][nodes->place[p].node];
      hall->pulls[r][p] = pulls ? factor * clipped(run, u, nodes->about[p]) : 0.0f;
    }
    BARRIER();
    for (int p = 0; p < n; p++) {
      float row[PER][2];
#pragma unroll
      for (int k = 0; k < PER; k++)
#pragma unroll
        for (int side = 0; side < 2; side++) row[k][side] = rows[p * ROW + THREAD + k * STRIDE + side * SIDE];
#pragma unroll
      for (int r = 0; r < SEATS; r++) {
        if (r >= runs) continue;
        float pull = hall->pulls[r][p];
#pragma unroll
        for (int k = 0; k < PER; k++)
#pragma unroll
          for (int side = 0; side < 2; side++) said[r][k][side] = fmaf(pull, row[k][side], said[r][k][side]);
      }
    }
#pragma unroll
    for (int r = 0; r < SEATS; r++) {
      if (r >= runs) continue;
      const Run& run = hall->runs[r];
#pragma unroll
      for (int k = 0; k < PER; k++)
#pragma unroll
        for (int side = 0; side < 2; side++) {
          total[r][k][side] += caught_up(run, nodes->place[0], nodes->at, nodes->slept, z[r][k][side]);
          z[r][k][side] += said[r][k][side] / (float)n;
          if (DESCENT) z[r][k][side] = shrunk(run, -push, z[r][k][side]);
        }
    }
    BARRIER();  // the rows have been used
  }
#pragma unroll
  for (int r = 0; r < SEATS; r++)
#pragma unroll
    for (int k = 0; k < PER; k++)
#pragma unroll
      for (int side = 0; side < 2; side++) {
        int c = THREAD + k * STRIDE, j = c + side * half;
        for (int i = 0; i < n && r < runs && c < half && j < m; i++) {
          hall->runs[r].z[(i64)i * m + j] = z[r][k][side];
          hall->runs[r].total[(i64)i * m + j] = total[r][k][side];
        }
      }
}
#endif
