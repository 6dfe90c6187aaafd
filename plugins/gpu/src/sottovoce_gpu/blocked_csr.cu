// Runs over CSR rows whose states do not fit the chip: a span of a few hundred places is processed twice.
//
// Coordinates meet in margins alone, and z is linear in what it was and in what is said. So (`span_lists`, once for all
// runs of a team, which share schedule and draws) the entries of a span's records are listed by column; (`span_scripts`)
// so is who sits where, and how much of what is said at a place is heard at a later one; (`span_ahead`) the few columns that have entries go through
// the span as if no record were there, and leave what z is where a record will meet it; (`span_slopes`) a run's slopes
// follow one from the other, with what earlier records of the span add to the columns they share; (`span_rounds`) the
// slopes being known, everything goes through the span, a part of the coordinates of several runs at a time, which stays
// on the chip all the while. Normals are drawn once for the runs of a team that are together. Places of a span are
// numbered from 0; a batch is those turns whose normals wait on the chip at a time.

#if !defined(SHORT) || defined(SPANS)

#define MAX_SIZE 4  // nodes of a turn that is no plain mean
#define NEVER 0x7fffffff
#define CACHED 128  // entries of a part that wait on the chip, if there are no more
#define HELD 4      // entries of a row that a thread has ahead of time
#ifdef __CUDACC__
#define ADD_ONE(to) atomicAdd(to, 1)
#define HEAVY __launch_bounds__(320, 2)
#define LIGHT __launch_bounds__(320, 3)
#define SHARING 8  // lanes that go through a column together
INSIDE float shared_sum(float v) {
  for (int step = SHARING / 2; step > 0; step >>= 1) v += __shfl_xor_sync(0xffffffffu, v, step);
  return v;
}
#else
#define ADD_ONE(to) __sync_fetch_and_add(to, 1)
#define HEAVY
#define LIGHT
#define SHARING 1
INSIDE float shared_sum(float v) { return v; }
#endif

struct Bound { int turn, place; };
struct alignas(8) Entry { int when; float value; };  // of a column: twice its place, and 1 more for the column's last
struct alignas(16) Spot { int begin, at; float value; int column; };  // of a row: where its column begins, and it stands
struct alignas(8) Two { float x, y; };
struct alignas(16) Four { float a, b, c, d; };

// On the chip, and in the script of a span: who sits at a place, with which keys; who hears whom; what is slept through.
struct alignas(16) Seat { int worker, place; float weight; int unused; u32 k0, k1, unused_0, unused_1; };
struct alignas(16) Head { int first, size, flat, unused; float w[MAX_SIZE * MAX_SIZE]; };
struct alignas(16) Drowsy { Slept slept; };

struct Team {  // runs that share schedule, draws and steps
  i64 runs, batched;
  const Run* run;
  const Bound* bounds;               // where batches begin, and the last one ends
  int *starts, *touched, *touches;   // of a span: where columns begin, those with entries, their number
  int* rows;                         // where places begin among the spots
  Entry* entries;
  Spot* spots;
  float* heard;                      // [place][of an earlier place]
  Seat* seats;
  Head* heads;
  Drowsy* drowsy;
  Two* meta;                         // [run][place]: how loud the noise is, and what the slope becomes
  float* unpulled;                   // of a run: z at the entries
};

struct Span {
  i64 teams, first, batches, number;  // `first` batch; `number` among the spans that are listed
  i64 counters, together, chunks, pieces, seats, turns, most_places, most_turns, most_entries, identical;
  const Team* all;
};

struct Extent { int from, to, place, places; };  // batches, the first place, how many

INSIDE Extent extent_of(const Span& w, const Team& team) {
  i64 to = w.first + w.batches < team.batched ? w.first + w.batches : team.batched;
  Extent found = {(int)w.first, (int)to, 0, 0};
  if (w.first >= to) return found;
  found.place = team.bounds[w.first].place;
  found.places = team.bounds[to].place - found.place;
  return found;
}

// ---- entries by column

INSIDE int entries_of(const Run& run, i64 row) {
  return row < 0 ? 0 : (int)(run.indptr[row + 1] - run.indptr[row]) + (run.intercept != 0.0);
}

INSIDE int column_of(const Run& run, i64 row, int k) {
  i64 e = run.indptr[row] + k;
  return e < run.indptr[row + 1] ? run.indices[e] : (int)run.m - 1;
}

KERNEL span_lists(const Span* given) {
  const Span w = given[BLOCK_NUMBER / given->teams];
  const Team team = w.all[BLOCK_NUMBER % w.teams];
  const Run& run = *team.run;
  const Extent span = extent_of(w, team);
  int m = (int)run.m, places = span.places;
  int* starts = team.starts + w.number * (m + 2);  // to begin with, of column j two places on
  int* rows = team.rows + w.number * (w.most_places + 1);
  int* touched = team.touched + w.number * w.most_entries;
  Entry* entries = team.entries + w.number * w.most_entries;
  Spot* spots = team.spots + w.number * w.most_entries;
  const Place* at = run.places + span.place;
  int *sums = (int*)ROOM, *tails = sums + THREADS + 1, total = 0;
  for (int j = THREAD; j < m + 2; j += THREADS) starts[j] = 0;
  for (int p = THREAD; p < places; p += THREADS) tails[p] = entries_of(run, at[p].row);
  BARRIER();
  if (THREAD == 0)
    for (int p = 0; p <= places; p++) {
      rows[p] = total;
      if (p < places) total += tails[p];
    }
  BARRIER();
  for (int p = WARP; p < places; p += WARPS)
    for (int k = LANE; k < tails[p]; k += LANES) ADD_ONE(starts + column_of(run, at[p].row, k) + 2);
  BARRIER();
  int each = (m + 2 + THREADS - 1) / THREADS, low = THREAD * each, high = low + each < m + 2 ? low + each : m + 2;
  for (int j = low; j < high; j++) total = starts[j] += j > low ? starts[j - 1] : 0;
  sums[THREAD] = high > low ? starts[high - 1] : 0;
  BARRIER();
  if (THREAD == 0)
    for (int t = 0, all = 0; t < THREADS; t++) {
      int mine = sums[t];
      sums[t] = all;
      all += mine;
    }
  BARRIER();
  for (int j = low; j < high; j++) starts[j] += sums[THREAD];
  for (int p = 0; p < places; p++) {  // in the order of time; a row has a column once
    BARRIER();
    i64 row = at[p].row;
    int from = rows[p], count = rows[p + 1] - from;
    for (int k = THREAD; k < count; k += THREADS) {
      i64 e = run.indptr[row] + k;
      bool stored = e < run.indptr[row + 1];
      int j = stored ? run.indices[e] : m - 1, position = starts[j + 1]++;
      float value = stored ? run.values[e] : (float)run.intercept;
      Entry entry = {2 * p, value};
      Spot spot = {0, position, value, j};
      entries[position] = entry;
      spots[from + k] = spot;
    }
  }
  BARRIER();
  for (int p = THREAD; p < places; p += THREADS) tails[p] = 0;
  BARRIER();
  int all = rows[places];
  for (int k = THREAD; k < all; k += THREADS) {
    int j = spots[k].column, position = spots[k].at;
    spots[k].begin = starts[j];
    if (position + 1 < starts[j + 1]) continue;
    int p = entries[position].when / 2;
    entries[position].when = 2 * p + 1;
    ADD_ONE(tails + p);
  }
  BARRIER();
  if (THREAD == 0) {  // columns that are needed longest first
    int before = 0;
    for (int p = places - 1; p >= 0; p--) {
      int mine = tails[p];
      tails[p] = before;
      before += mine;
    }
    team.touches[w.number] = before;
  }
  BARRIER();
  for (int k = THREAD; k < all; k += THREADS) {
    int when = entries[spots[k].at].when;
    if (when & 1) touched[ADD_ONE(tails + when / 2)] = spots[k].column;
  }
}

// ---- the script: seats, turns, and how much of what is said at a place is in another node's z before its turn

INSIDE void write_script(const Span& w, const Team& team, const Run& run, const Extent& span) {
  int first_turn = team.bounds[span.from].turn, workers = (int)(w.together * w.counters);
  Seat* seats = team.seats + w.number * w.most_places;
  Head* heads = team.heads + w.number * w.most_turns;
  Drowsy* drowsy = team.drowsy + w.number * w.most_places;
  Two* meta = team.meta + w.number * team.runs * w.most_places;
  for (int k = WARP; k < team.bounds[span.to].turn - first_turn; k += WARPS) {
    const Turn turn = run.turns[first_turn + k];
    Head* head = heads + k;
    if (LANE == 0) {
      head->first = turn.first - span.place;
      head->size = turn.size;
      head->flat = turn.flat;
      head->unused = 0;
      for (int e = 0; turn.size <= MAX_SIZE && e < turn.size * turn.size; e++) head->w[e] = run.weights[turn.corner + e];
    }
    for (int p = LANE; p < turn.size; p += LANES) {
      int q = turn.first - span.place + p;
      const Place place = run.places[turn.first + p];
      const Numbers at = run.numbers[turn.first + p];
      Seat seat = {w.identical ? 0 : place.node * workers, q, at.weight, 0, place.k0, place.k1, 0u, 0u};
      seats[q] = seat;
      for (int r = 0; r < (int)team.runs; r++) {
        Two both = {p < turn.speakers ? at.push * team.run[r].loud[place.node] : 0.0f, 0.0f};
        meta[r * w.most_places + q] = both;
      }
      if (LINEAR) continue;
      Drowsy found = {run.slept[turn.first + p]};
      int* unused = (int*)&found.slept.unused;
      unused[0] = place.before;
      unused[1] = place.t;
      drowsy[q] = found;
    }
  }
}

KERNEL span_scripts(const Span* given) {
  const Span w = given[BLOCK_NUMBER / given->teams];
  const Team team = w.all[BLOCK_NUMBER % w.teams];
  const Run& run = *team.run;
  const Extent span = extent_of(w, team);
  if (!span.places) return;
  write_script(w, team, run, span);
  float* heard = team.heard + w.number * w.most_places * w.most_places;
  float* share = ROOM + THREAD;  // of node i at i THREADS
  int n = (int)run.n;
  for (int s = THREAD; s < span.places; s += THREADS) {
    for (int i = 0; i < n; i++) share[i * THREADS] = 0.0f;
    for (int k = team.bounds[span.from].turn; k < team.bounds[span.to].turn; k++) {
      const Turn& turn = run.turns[k];
      const Place* place = run.places + turn.first;
      const float* W = run.weights + turn.corner;
      int size = turn.size, first = turn.first - span.place;
      float mean = 0.0f, v[MAX_SIZE] = {0.0f, 0.0f, 0.0f, 0.0f};
      for (int p = 0; p < size; p++) {
        float before = share[place[p].node * THREADS], after = first + p == s ? before + 1.0f : before;
        heard[(first + p) * w.most_places + s] = before;
        mean += after;
#pragma unroll
        for (int e = 0; e < MAX_SIZE; e++)
          if (e == p) v[e] = after;
      }
      for (int q = 0; q < size; q++) {
        float found = mean / (float)size;
        if (!turn.flat) {
          found = 0.0f;
#pragma unroll
          for (int p = 0; p < MAX_SIZE; p++)
            if (p < size) found += W[q * size + p] * v[p];
        }
        share[place[q].node * THREADS] = found;
      }
    }
  }
}

// ---- batches on the chip
//
// While a batch is worked on the normals of the next are drawn, from seats that were requested a batch before; half of
// the warps draw first and half of them last, so that what counts and what moves goes on side by side. So there is one
// barrier a batch. There are three rooms for seats, and two for all else.

struct alignas(16) Part {  // of a block: which runs, and where its batches are; on the chip, registers being for the work
  int low, high, most, batches;
  const Bound* bounds;  // on the chip, from the span's first turn and place on
  const Seat* script;
  const Head* heads;
  const Drowsy* drowsy;
  const Two* meta;
  Seat* seats;
  Head* heads_here;
  Drowsy* drowsy_here;
  Two* meta_here;
  int most_turns;
  i64 most_places;
};

static_assert(sizeof(Part) <= 128, "spans.py knows how large it is");

INSIDE void fetch_fours(void* to, const void* from, int fours) {
  for (int k = THREAD; k < fours; k += THREADS) fetch_four((u32*)to + 4 * k, (const u32*)from + 4 * k);
}

INSIDE void fetch_seats(const Part& part, int batch) {
  if (batch >= part.batches) return;
  int first = part.bounds[batch].place, places = part.bounds[batch + 1].place - first;
  fetch_fours(part.seats + batch % 3 * part.most, part.script + first, places * (int)(sizeof(Seat) / 16));
}

INSIDE void fetch_rest(const Part& part, int batch) {
  if (batch >= part.batches) return;
  const Bound from = part.bounds[batch], end = part.bounds[batch + 1];
  int places = end.place - from.place, odd = batch & 1;
  fetch_fours(part.heads_here + odd * part.most_turns, part.heads + from.turn, (end.turn - from.turn) * (int)(sizeof(Head) / 16));
  if (part.drowsy) fetch_fours(part.drowsy_here + odd * part.most, part.drowsy + from.place, places * (int)(sizeof(Drowsy) / 16));
  Two* to = part.meta_here + odd * (part.high - part.low) * part.most;
  for (int k = THREAD; k < (part.high - part.low) * places * 2; k += THREADS) {
    int r = k / (2 * places), word = k % (2 * places);
    fetch_word((u32*)(to + r * part.most) + word, (const u32*)(part.meta + (part.low + r) * part.most_places + from.place) + word);
  }
}

// Seats and counters, partitioned to the threads.
struct Cell { int q, c, more_q, more_c; };

INSIDE Cell first_cell(int counters) {
  Cell found = {THREAD / counters, THREAD % counters, THREADS / counters, THREADS % counters};
  return found;
}

INSIDE Cell next_cell(Cell at, int counters) {
  at.q += at.more_q;
  at.c += at.more_c;
  if (at.c < counters) return at;
  at.c -= counters;
  at.q += 1;
  return at;
}

// All batches up to the one that begins after the place `last`: `draws` the normals of a seat at a counter into one of two
// rooms, and `plays` a batch whose normals are there.
template <typename Draws, typename Plays>
INSIDE void batch_by_batch(const Part& part, const Seat* rooms, const Bound* bounds, int counters, int last,
                           const Draws& draws, const Plays& plays) {
  for (int batch = -1; batch < part.batches; batch++) {  // of the batch before the first there are the next one's normals
    if (batch >= 0) {
      if (bounds[batch].place > last) break;
      fetches_are_done();
      BARRIER();
      fetch_seats(part, batch + 2);
      fetch_rest(part, batch + 1);
    }
    for (int step = 0; step < 2; step++) {
      if (((step + WARP) & 1) == 0) {
        if (batch >= 0) plays(batch, batch & 1);
        continue;
      }
      if (batch + 1 >= part.batches) continue;
      const Seat* seats = rooms + (batch + 1) % 3 * part.most;
      int places = bounds[batch + 2].place - bounds[batch + 1].place, room = ((batch + 1) & 1) * part.most * counters;
      for (Cell at = first_cell(counters); at.q < places; at = next_cell(at, counters))
        draws(seats[at.q], at.c, room + at.q * counters + at.c);
    }
  }
  fetches_are_done();
}

INSIDE bool part_of(Part& part, const Span& w, const Team& team, const Extent& span, int chunk) {
  part.low = chunk * (int)w.together;
  part.high = part.low + (int)w.together < (int)team.runs ? part.low + (int)w.together : (int)team.runs;
  part.most = (int)w.seats;
  part.most_turns = (int)w.turns;
  part.most_places = w.most_places;
  part.batches = span.to - span.from;
  part.script = team.seats + w.number * w.most_places;
  part.heads = team.heads + w.number * w.most_turns;
  part.drowsy = team.drowsy + w.number * w.most_places;
  part.meta = team.meta + w.number * team.runs * w.most_places;
  return part.low < part.high && span.places > 0;
}

INSIDE void bounds_on_chip(const Team& team, const Extent& span, Bound* to) {
  Bound first = team.bounds[span.from];
  for (int k = THREAD; k <= span.to - span.from; k += THREADS) {
    Bound found = team.bounds[span.from + k];
    found.turn -= first.turn;
    found.place -= first.place;
    to[k] = found;
  }
}

// ---- the columns that have entries, as if no record were there

struct Light {  // a column of a run on its way
  int at, when;
  const Entry* entries;
  float* unpulled;
};

INSIDE void meet(Light& light, const Seat& seat, float z) {  // leave what z is, if a record is here
  if (light.when >> 1 != seat.place) return;
  light.unpulled[light.at] = z;
  light.at = light.when & 1 ? -1 : light.at + 1;
  light.when = light.when & 1 ? NEVER : light.entries[light.at].when;
}

KERNEL LIGHT span_ahead(const Span* given) {
  const Span w = *given;
  i64 piece = BLOCK_NUMBER / w.chunks % w.pieces;
  const Team team = w.all[BLOCK_NUMBER / (w.chunks * w.pieces)];
  const Run& run = *team.run;
  const Extent span = extent_of(w, team);
  Part made;
  if (!part_of(made, w, team, span, (int)(BLOCK_NUMBER % w.chunks))) return;
  int n = w.identical ? 1 : (int)run.n, m = (int)run.m, half = (m + 1) / 2, counters = (int)w.counters, most = made.most;
  int count = team.touches[w.number], base = (int)piece * counters, workers = (int)w.together * counters;
  int low = made.low, high = made.high;
  if (base >= count) return;
  int columns = count - base < counters ? count - base : counters;
  const int* touched = team.touched + w.number * w.most_entries + base;
  const int* starts = team.starts + w.number * (m + 2);
  const Entry* entries = team.entries + w.number * w.most_entries;
  Part& part = *(Part*)ROOM;  // for what is requested; the work has `made`, of which the compiler knows that it is on the chip
  made.drowsy = 0;
  made.drowsy_here = 0;
  made.seats = (Seat*)(&part + 1);
  made.heads_here = (Head*)(made.seats + 3 * most);
  Bound* bounds = (Bound*)(made.heads_here + 2 * w.turns);
  made.bounds = bounds;
  made.meta_here = (Two*)(bounds + w.batches + 1);
  if (THREAD == 0) part = made;
  float* z = (float*)(made.meta_here + 2 * (high - low) * most);  // [node][worker]
  float* normals = z + n * workers;                               // twice [seat][counter]
  int* cursors = (int*)(normals + 2 * most * counters);           // [worker]
  int* here = cursors + workers;                                  // [counter]: its column
  bounds_on_chip(team, span, bounds);
  for (int c = THREAD; c < columns; c += THREADS) here[c] = touched[c];
  BARRIER();
  fetch_seats(part, 0);
  fetch_seats(part, 1);
  fetch_rest(part, 0);
  for (int x = THREAD; x < workers; x += THREADS) {
    int r = x / counters, c = x % counters;
    if (low + r >= high || c >= columns) continue;
    const float* from = team.run[low + r].z + here[c];
    cursors[x] = starts[here[c]];
    for (int i = 0; i < n; i++) fetch_word((u32*)z + i * workers + x, (const u32*)from + (i64)i * m);
  }
  int last = entries[starts[here[0] + 1] - 1].when / 2;  // of all columns here the first is needed longest
  fetches_are_done();
  BARRIER();
  auto draws = [&](const Seat& seat, int c, int to) {
    if (c >= columns) return;
    int j = here[c];
    float x, y;
    normal_pair(seat.k0, seat.k1, (u32)(j < half ? j : j - half), x, y);
    normals[to] = j < half ? x : y;
  };
  auto plays = [&](int batch, int odd) {
    for (int x = THREAD; x < workers; x += THREADS) {
      int r = x / counters, c = x % counters;
      if (low + r >= high || c >= columns || cursors[x] < 0) continue;
      const Seat* seats = made.seats + batch % 3 * most - bounds[batch].place;
      const Head* heads = made.heads_here + odd * (int)w.turns;
      const Two* meta = made.meta_here + (odd * (high - low) + r) * most - bounds[batch].place;
      const float* drawn = normals + odd * most * counters + c - bounds[batch].place * counters;
      float* its = z + x;
      int turns = bounds[batch + 1].turn - bounds[batch].turn;
      Light light = {cursors[x], entries[cursors[x]].when, entries, team.unpulled + (low + r) * w.most_entries};
      for (int k = 0; k < turns; k++) {
        const Head& head = heads[k];
        int first = head.first, size = head.size;
        if (size == 2) {
          const Seat &a = seats[first], &b = seats[first + 1];
          float u = its[a.worker], v = its[b.worker];
          if (light.when >> 1 <= b.place) {
            meet(light, a, u);
            meet(light, b, v);
          }
          u += meta[first].x * drawn[first * counters];
          v += meta[first + 1].x * drawn[(first + 1) * counters];
          float mean = 0.5f * (u + v), other = mean;
          if (!head.flat) {
            mean = head.w[0] * u + head.w[1] * v;
            other = head.w[2] * u + head.w[3] * v;
          }
          its[a.worker] = mean;
          its[b.worker] = other;
          continue;
        }
        float u[MAX_SIZE] = {0.0f, 0.0f, 0.0f, 0.0f}, mean = 0.0f;
        for (int p = 0; p < size; p++) {
          float v = its[seats[first + p].worker];
          meet(light, seats[first + p], v);
          v += meta[first + p].x * drawn[(first + p) * counters];
          mean += v;
#pragma unroll
          for (int e = 0; e < MAX_SIZE; e++)
            if (e == p) u[e] = v;
        }
        mean /= (float)size;
        for (int q = 0; q < (w.identical ? 1 : size); q++) {
          float found = mean;
          if (!head.flat) {
            found = 0.0f;
#pragma unroll
            for (int p = 0; p < MAX_SIZE; p++)
              if (p < size) found += head.w[q * size + p] * u[p];
          }
          its[seats[first + q].worker] = found;
        }
      }
      cursors[x] = light.at;
    }
  };
  batch_by_batch(part, made.seats, bounds, counters, last, draws, plays);
}

// ---- slopes, sequentially

struct Ahead { Spot spot[HELD]; float z[HELD]; };  // a thread's share of a row

INSIDE void look_at(Ahead& ahead, const Spot* spots, int from, int to) {
  const Spot nothing = {0, 0, 0.0f, 0};
#pragma unroll
  for (int h = 0; h < HELD; h++) {
    int k = from + h * (THREADS / SHARING) + THREAD / SHARING;
    ahead.spot[h] = k < to ? spots[k] : nothing;
  }
}

INSIDE void reach(Ahead& ahead, const float* unpulled) {
#pragma unroll
  for (int h = 0; h < HELD; h++) ahead.z[h] = ahead.spot[h].value != 0.0f ? unpulled[ahead.spot[h].at] : 0.0f;
}

INSIDE float inner(const Run& run, const Numbers& at, const Ahead& ahead, const Entry* entries, const float* arrived) {
  float sum[HELD] = {0.0f, 0.0f, 0.0f, 0.0f}, u = 0.0f;
  int longest = 0;
#pragma unroll
  for (int h = 0; h < HELD; h++) {
    int length = ahead.spot[h].at - ahead.spot[h].begin;
    longest = length > longest ? length : longest;
  }
  for (int e = THREAD % SHARING; e < longest; e += SHARING)
#pragma unroll
    for (int h = 0; h < HELD; h++)
      if (ahead.spot[h].begin + e < ahead.spot[h].at) {
        const Entry entry = entries[ahead.spot[h].begin + e];
        sum[h] += arrived[entry.when >> 1] * entry.value;
      }
#pragma unroll
  for (int h = 0; h < HELD; h++) {
    float z = ahead.z[h] + shared_sum(sum[h]);
    if (THREAD % SHARING == 0 && ahead.spot[h].value != 0.0f) u += ahead.spot[h].value * primal(run, at, z);
  }
  return u;
}

struct Who { int node; i64 row; };
struct Fact { Numbers at; About about; float share; };  // nothing is shared of a record that is not there

INSIDE Who who_is(const Run& run, i64 place) {
  Who found = {run.places[place].node, run.places[place].row};
  return found;
}

INSIDE Fact fact_of(const Run& run, i64 place, const Who& who) {
  Fact found = {run.numbers[place], {0.0f, 0.0f, 0.0f, 0.0f}, 0.0f};
  if (who.row < 0) return found;
  found.about = run.about[who.row];
  found.share = run.share[who.node];
  return found;
}

KERNEL span_slopes(const Span* given) {
  const Span w = *given;
  i64 runs = BLOCKS / w.teams;
  const Team team = w.all[BLOCK_NUMBER / runs];
  int r = (int)(BLOCK_NUMBER % runs), whole = HELD * (THREADS / SHARING);
  const Extent span = extent_of(w, team);
  if (r >= team.runs || !span.places) return;
  const Run& run = team.run[r];
  const Entry* entries = team.entries + w.number * w.most_entries;
  const Spot* spots = team.spots + w.number * w.most_entries;
  const float* heard = team.heard + w.number * w.most_places * w.most_places;
  const float* unpulled = team.unpulled + r * w.most_entries;
  Two* meta = team.meta + (w.number * team.runs + r) * w.most_places;
  float *pulls = ROOM, *arrived = pulls + w.most_places, *coming = arrived + w.most_places;  // two rows of weights
  float* partial = coming + 2 * w.most_places;
  int* rows = (int*)(partial + 2 * WARPS);
  for (int p = THREAD; p <= span.places; p += THREADS) rows[p] = team.rows[w.number * (w.most_places + 1) + p];
  BARRIER();
  Ahead now, next;
  look_at(now, spots, rows[0], rows[1]);
  reach(now, unpulled);
  next = now;
  i64 end = span.place + span.places - 1;  // facts are far: who it is two places ahead, what is known of its record one
  Fact fact = fact_of(run, span.place, who_is(run, span.place)), known = fact;
  Who soon = who_is(run, span.place < end ? span.place + 1 : end), later = soon;
  for (int p = 0; p < span.places; p++) {
    const Numbers& at = fact.at;
    bool more = p + 1 < span.places;
    if (more) known = fact_of(run, span.place + p + 1, soon);
    later = who_is(run, span.place + p + 2 < end ? span.place + p + 2 : end);
    float *part = partial + (p & 1) * WARPS, *weights = coming + (p & 1) * w.most_places;
    if (more) look_at(next, spots, rows[p + 1], rows[p + 2]);
    fetches_are_done();  // each thread uses what it has requested itself
    for (int s = THREAD; s < p; s += THREADS) arrived[s] = weights[s] * pulls[s];
    BARRIER();
    float* after = coming + ((p + 1) & 1) * w.most_places;
    for (int s = THREAD; more && s <= p; s += THREADS)
      fetch_word((u32*)after + s, (const u32*)heard + (p + 1) * w.most_places + s);
    float u = inner(run, at, now, entries, arrived);
    for (int from = rows[p] + whole; from < rows[p + 1]; from += whole) {  // a row that is longer than usual
      look_at(now, spots, from, rows[p + 1]);
      reach(now, unpulled);
      u += inner(run, at, now, entries, arrived);
    }
    if (more) reach(next, unpulled);
    u = warp_sum(u);
    if (LANE == 0) part[WARP] = u;
    BARRIER();
    u = 0.0f;
    for (int k = 0; k < WARPS; k++) u += part[k];
    if (p % THREADS == THREAD) {  // who will need it
      pulls[p] = fact.share != 0.0f ? at.push * fact.share * clipped(run, u, fact.about) : 0.0f;
      meta[p].y = pulls[p];
    }
    now = next;
    fact = known;
    soon = later;
  }
  fetches_are_done();
}

// ---- everything, slopes being known

struct Heavy {  // two coordinates of a run on their way
  int at[2], soonest, counters;
  Entry next[2];
  const Entry* entries;
  const Run* run;
  const Two *meta, *normals;  // of its run, of its counter
  const Drowsy* drowsy;
};

INSIDE float slept_through(const Slept& slept, float z, bool& between) {  // what takes a search is rare, and stands apart
  float size = fabsf(z), part = fmaf(size, slept.rise, -slept.fixed) + fmaf(size, slept.rise_less, -slept.fixed_less);
  bool awake = size > slept.far_off;
  between = between || (!awake && size > slept.near_by);
  return awake ? (z > 0.0f ? -part : part) : 0.0f;
}

// What the search finds for two coordinates of which at least one needs it.
APART Two searched_both(const Run* self, const Drowsy* drowsy, float a, float b, float more_a, float more_b) {
  const Run& run = *self;
  const int* rounds = (const int*)&drowsy->slept.unused;
  Two found = {more_a, more_b};
  if (BOXED || fabsf(a) <= drowsy->slept.far_off) found.x = searched(self, a, rounds[0], rounds[1]);
  if (BOXED || fabsf(b) <= drowsy->slept.far_off) found.y = searched(self, b, rounds[0], rounds[1]);
  return found;
}

INSIDE void catch_up(const Heavy& heavy, const Run& run, const Seat& seat, int p, Four& now) {
  if (LINEAR) {
    now.c -= seat.weight * now.a;
    now.d -= seat.weight * now.b;
    return;
  }
  const Slept& slept = heavy.drowsy[p].slept;
  bool between = BOXED;
  Two more = {slept_through(slept, now.a, between), slept_through(slept, now.b, between)};
  if (between) more = searched_both(heavy.run->self, heavy.drowsy + p, now.a, now.b, more.x, more.y);
  now.c += more.x;
  now.d += more.y;
}

INSIDE void add_noise(const Heavy& heavy, int p, Four& now) {
  float loud = heavy.meta[p].x;
  const Two drawn = heavy.normals[p * heavy.counters];
  now.a += loud * drawn.x;
  now.b += loud * drawn.y;
}

INSIDE void add_record(Heavy& heavy, const Seat& seat, int p, Four& now) {  // if there is one here
  float pull = heavy.meta[p].y;
#pragma unroll
  for (int side = 0; side < 2; side++)
    if (heavy.next[side].when >> 1 == seat.place) {
      (side ? now.b : now.a) += pull * heavy.next[side].value;
      heavy.at[side] = heavy.next[side].when & 1 ? -1 : heavy.at[side] + 1;
      heavy.next[side].when = NEVER;
      if (heavy.at[side] >= 0) heavy.next[side] = heavy.entries[heavy.at[side]];
    }
  heavy.soonest = (heavy.next[0].when < heavy.next[1].when ? heavy.next[0].when : heavy.next[1].when) >> 1;
}

INSIDE void play(Heavy& heavy, const Run& run, const Head* heads, int turns, const Seat* seats, Four* its, bool identical) {
  for (int k = 0; k < turns; k++) {
    const Head& head = heads[k];
    int first = head.first, size = head.size;
    if (size == 2) {
      const Seat &a = seats[first], &b = seats[first + 1];
      Four u = its[a.worker], v = its[b.worker];
      catch_up(heavy, run, a, first, u);
      catch_up(heavy, run, b, first + 1, v);
      add_noise(heavy, first, u);
      add_noise(heavy, first + 1, v);
      if (heavy.soonest <= b.place) {
        add_record(heavy, a, first, u);
        add_record(heavy, b, first + 1, v);
      }
      Two mean = {0.5f * (u.a + v.a), 0.5f * (u.b + v.b)}, other = mean;
      if (!head.flat) {
        const Four W = *(const Four*)head.w;
        mean.x = W.a * u.a + W.b * v.a;
        mean.y = W.a * u.b + W.b * v.b;
        other.x = W.c * u.a + W.d * v.a;
        other.y = W.c * u.b + W.d * v.b;
      }
      Four mixed_u = {mean.x, mean.y, u.c, u.d}, mixed_v = {other.x, other.y, v.c, v.d};
      its[a.worker] = mixed_u;
      its[b.worker] = mixed_v;
      continue;
    }
    if (identical) {  // all nodes stand where one does, and average
      Four now = *its, said = {0.0f, 0.0f, 0.0f, 0.0f};
      catch_up(heavy, run, seats[first], first, now);
      for (int p = first; p < first + size; p++) {
        add_noise(heavy, p, said);
        if (heavy.soonest == p) add_record(heavy, seats[p], p, said);
      }
      now.a += said.a / (float)size;
      now.b += said.b / (float)size;
      *its = now;
      continue;
    }
    Two u[MAX_SIZE], mean = {0.0f, 0.0f};
#pragma unroll
    for (int e = 0; e < MAX_SIZE; e++) u[e] = mean;
    for (int p = 0; p < size; p++) {
      const Seat& seat = seats[first + p];
      Four v = its[seat.worker];
      catch_up(heavy, run, seat, first + p, v);
      add_noise(heavy, first + p, v);
      if (heavy.soonest == first + p) add_record(heavy, seat, first + p, v);
      Two said = {v.a, v.b}, sums = {v.c, v.d};
      ((Two*)(its + seat.worker))[1] = sums;
      mean.x += v.a;
      mean.y += v.b;
#pragma unroll
      for (int e = 0; e < MAX_SIZE; e++)
        if (e == p) u[e] = said;
    }
    mean.x /= (float)size;
    mean.y /= (float)size;
    for (int q = 0; q < size; q++) {
      Two found = mean;
      if (!head.flat) {
        found.x = found.y = 0.0f;
#pragma unroll
        for (int p = 0; p < MAX_SIZE; p++)
          if (p < size) {
            found.x += head.w[q * size + p] * u[p].x;
            found.y += head.w[q * size + p] * u[p].y;
          }
      }
      *(Two*)(its + seats[first + q].worker) = found;
    }
  }
}

KERNEL HEAVY span_rounds(const Span* given) {
  const Span w = *given;
  int n = w.identical ? 1 : (int)w.all->run->n, m = (int)w.all->run->m, half = (m + 1) / 2, counters = (int)w.counters;
  int parts = (half + counters - 1) / counters, base = (int)(BLOCK_NUMBER / w.chunks % parts) * counters;
  const Team team = w.all[BLOCK_NUMBER / (w.chunks * parts)];
  const Run& run = *team.run;
  const Extent span = extent_of(w, team);
  Part made;
  if (!part_of(made, w, team, span, (int)(BLOCK_NUMBER % w.chunks))) return;
  int low = made.low, high = made.high, workers = (int)w.together * counters, most = made.most;
  const int* starts = team.starts + w.number * (m + 2);
  const Entry* entries = team.entries + w.number * w.most_entries;
  Four* state = (Four*)ROOM;  // [node][worker]: z of coordinates c and half + c, and then their sums
  Part& part = *(Part*)(state + n * workers);
  made.seats = (Seat*)(&part + 1);
  made.heads_here = (Head*)(made.seats + 3 * most);
  made.drowsy_here = (Drowsy*)(made.heads_here + 2 * w.turns);
  Bound* bounds = (Bound*)(made.drowsy_here + (LINEAR ? 0 : 2 * most));
  made.bounds = bounds;
  Entry* cache = (Entry*)(bounds + w.batches + 1);
  made.meta_here = (Two*)(cache + CACHED);                        // twice [run][seat]
  if (LINEAR) made.drowsy = 0;
  if (THREAD == 0) part = made;
  Two* normals = made.meta_here + 2 * (int)w.together * most;     // twice [seat][counter]
  int* cursors = (int*)(normals + 2 * most * counters);           // [side][worker]
  bounds_on_chip(team, span, bounds);
  int end = base + counters < half ? base + counters : half, upper = half + end < m ? half + end : m;
  int from[2] = {starts[base], starts[half + base < m ? half + base : m]};
  int count[2] = {starts[end] - from[0], starts[upper] - from[1]};
  bool near_by = count[0] + count[1] <= CACHED;
  BARRIER();
  fetch_seats(part, 0);
  fetch_seats(part, 1);
  fetch_rest(part, 0);
  for (int k = THREAD; near_by && k < 2 * (count[0] + count[1]); k += THREADS)
    fetch_word((u32*)cache + k, (const u32*)entries + (k < 2 * count[0] ? 2 * from[0] + k : 2 * from[1] + k - 2 * count[0]));
  for (int x = THREAD; x < workers; x += THREADS) {
    int r = x / counters, c = base + x % counters;
    if (low + r >= high || c >= half) continue;
    const Run& mine = team.run[low + r];
    bool both = half + c < m;
    int at[2] = {starts[c], both ? starts[half + c] : 0};
    bool some[2] = {at[0] < starts[c + 1], both && at[1] < starts[half + c + 1]};
    cursors[x] = !some[0] ? -1 : near_by ? at[0] - from[0] : at[0];
    cursors[workers + x] = !some[1] ? -1 : near_by ? at[1] - from[1] + count[0] : at[1];
    for (int i = 0; i < n; i++) {
      const u32 *z = (const u32*)mine.z + (i64)i * m + c, *total = (const u32*)mine.total + (i64)i * m + c;
      u32* to = (u32*)(state + i * workers + x);
      fetch_word(to, z);
      fetch_word(to + 2, total);
      if (both) fetch_word(to + 1, z + half);
      if (both) fetch_word(to + 3, total + half);
      if (!both) to[1] = to[3] = 0u;
    }
  }
  if (near_by) entries = cache;
  fetches_are_done();
  BARRIER();
  auto draws = [&](const Seat& seat, int c, int to) {
    Two found;
    normal_pair(seat.k0, seat.k1, (u32)(base + c), found.x, found.y);
    normals[to] = found;
  };
  auto plays = [&](int batch, int odd) {
    for (int x = THREAD; x < workers; x += THREADS) {
      int r = x / counters, c = x % counters, first = bounds[batch].place;
      if (low + r >= high || base + c >= half) continue;
      Heavy heavy;
      heavy.entries = entries;
      heavy.run = team.run + low + r;
      heavy.meta = made.meta_here + (odd * (high - low) + r) * most - first;
      heavy.normals = normals + odd * most * counters + c - first * counters;
      heavy.drowsy = made.drowsy_here + odd * most - first;
      heavy.counters = counters;
#pragma unroll
      for (int side = 0; side < 2; side++) {
        heavy.at[side] = cursors[side * workers + x];
        heavy.next[side].when = NEVER;
        heavy.next[side].value = 0.0f;
        if (heavy.at[side] >= 0) heavy.next[side] = entries[heavy.at[side]];
      }
      heavy.soonest = (heavy.next[0].when < heavy.next[1].when ? heavy.next[0].when : heavy.next[1].when) >> 1;
      play(heavy, run, made.heads_here + odd * (int)w.turns, bounds[batch + 1].turn - bounds[batch].turn,
           made.seats + batch % 3 * most - first, state + x, w.identical);
#pragma unroll
      for (int side = 0; side < 2; side++) cursors[side * workers + x] = heavy.at[side];
    }
  };
  batch_by_batch(part, made.seats, bounds, counters, NEVER, draws, plays);
  for (int x = THREAD; x < workers; x += THREADS) {
    int r = x / counters, c = base + x % counters;
    if (low + r >= high || c >= half) continue;
    const Run& mine = team.run[low + r];
#pragma unroll 4
    for (int i = 0; i < n; i++) {
      float *z = mine.z + (i64)i * m + c, *total = mine.total + (i64)i * m + c;
      Four found = state[i * workers + x];
      z[0] = found.a;
      total[0] = found.c;
      if (half + c < m) {
        z[half] = found.b;
        total[half] = found.d;
      }
    }
  }
}
#endif
