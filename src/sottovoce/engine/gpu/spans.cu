// Runs over CSR rows whose states do not fit the chip: a span of a few hundred places is gone through twice.
//
// Coordinates meet in margins alone, and z is linear in what it was and in what is said. So (`span_lists`, once for all
// runs of a crew, which share schedule and draws) the entries of a span's records are listed by column; (`span_weights`)
// how much of what is said at a place is heard at a later one; (`span_ahead`) the few columns that have entries go through
// the span as if no record were there, and leave what z is where a record will meet it; (`span_slopes`) a run's slopes
// follow one from the other, with what earlier records of the span add to the columns they share; (`span_rounds`) the
// slopes being known, everything goes through the span, a part of the coordinates of several runs at a time, which stays
// on the chip all the while. Normals are drawn once for the runs of a crew that are together. Places of a span are
// numbered from 0; a batch is those turns whose normals wait on the chip at a time.

#define FEW 4  // nodes of a turn that is no plain mean
#ifdef __CUDACC__
#define ADD_ONE(to) atomicAdd(to, 1)
#define MANY __launch_bounds__(320, 2)
#else
#define ADD_ONE(to) __sync_fetch_and_add(to, 1)
#define MANY
#endif
#define NEVER 0x7fffffff

struct Bound { int turn, place; };
struct alignas(8) Entry { int when; float value; };  // of a column: twice its place, and 1 more for the column's last
struct alignas(16) Spot { int begin, at; float value; int column; };  // of a row: where its column begins, and it stands
struct alignas(8) Two { float x, y; };
struct alignas(16) Four { float a, b, c, d; };

struct Crew {  // runs that share schedule, draws and steps
  i64 runs, batched;
  const Run* run;
  const Bound* bounds;               // where batches begin, and the last one ends
  int *starts, *touched, *touches;   // of a span: where columns begin, those with entries, their number
  int* rows;                         // where places begin among the spots
  Entry* entries;
  Spot* spots;
  float* heard;                      // [place][of an earlier place]
  float *unpulled, *pulls;           // of a run: z at the entries, what slopes become
};

struct Span {
  i64 crews, first, batches, number;  // `first` batch; `number` among the spans that are listed
  i64 counters, together, chunks, pieces, seats, turns, most_places, most_entries;
  const Crew* all;
};

struct Extent { int from, to, place, places; };  // batches, the first place, how many

INSIDE Extent extent_of(const Span& w, const Crew& crew) {
  i64 to = w.first + w.batches < crew.batched ? w.first + w.batches : crew.batched;
  Extent found = {(int)w.first, (int)to, 0, 0};
  if (w.first >= to) return found;
  found.place = crew.bounds[w.first].place;
  found.places = crew.bounds[to].place - found.place;
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
  const Span w = given[BLOCK_NUMBER / given->crews];
  const Crew crew = w.all[BLOCK_NUMBER % w.crews];
  const Run& run = *crew.run;
  const Extent span = extent_of(w, crew);
  int m = (int)run.m, places = span.places;
  int* starts = crew.starts + w.number * (m + 2);  // to begin with, of column j two places on
  int* rows = crew.rows + w.number * (w.most_places + 1);
  int* touched = crew.touched + w.number * w.most_entries;
  Entry* entries = crew.entries + w.number * w.most_entries;
  Spot* spots = crew.spots + w.number * w.most_entries;
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
    crew.touches[w.number] = before;
  }
  BARRIER();
  for (int k = THREAD; k < all; k += THREADS) {
    int when = entries[spots[k].at].when;
    if (when & 1) touched[ADD_ONE(tails + when / 2)] = spots[k].column;
  }
}

// ---- how much of what is said at a place is in the z of another place's node, before its turn

KERNEL span_weights(const Span* given) {
  const Span w = given[BLOCK_NUMBER / given->crews];
  const Crew crew = w.all[BLOCK_NUMBER % w.crews];
  const Run& run = *crew.run;
  const Extent span = extent_of(w, crew);
  float* heard = crew.heard + w.number * w.most_places * w.most_places;
  float* share = ROOM + THREAD;  // of node i at i THREADS
  int n = (int)run.n;
  for (int s = THREAD; s < span.places; s += THREADS) {
    for (int i = 0; i < n; i++) share[i * THREADS] = 0.0f;
    for (int k = crew.bounds[span.from].turn; span.places && k < crew.bounds[span.to].turn; k++) {
      const Turn& turn = run.turns[k];
      const Place* place = run.places + turn.first;
      const float* W = run.weights + turn.corner;
      int size = turn.size, first = turn.first - span.place;
      float mean = 0.0f, v[FEW] = {0.0f, 0.0f, 0.0f, 0.0f};
      for (int p = 0; p < size; p++) {
        float before = share[place[p].node * THREADS], after = first + p == s ? before + 1.0f : before;
        heard[(first + p) * w.most_places + s] = before;
        mean += after;
#pragma unroll
        for (int e = 0; e < FEW; e++)
          if (e == p) v[e] = after;
      }
      for (int q = 0; q < size; q++) {
        float found = mean / (float)size;
        if (!turn.flat) {
          found = 0.0f;
#pragma unroll
          for (int p = 0; p < FEW; p++)
            if (p < size) found += W[q * size + p] * v[p];
        }
        share[place[q].node * THREADS] = found;
      }
    }
  }
}

// ---- a batch on the chip

struct alignas(16) Seat { int worker, place; float weight; int unused; };  // of a node: the first of its workers
struct alignas(16) Head { int first, size, flat, unused; float w[FEW * FEW]; };
struct alignas(16) Drowsy { float rise, rise_rest, fixed, fixed_rest, near_by, far_off; int before, t; };

// Seats and counters, dealt to the threads.
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

// What a batch is made from, asked for while the one before is worked on.
struct Asked { Turn* turns; Place* places; Numbers* numbers; Slept* slept; float* pulls; };

INSIDE void ask_all(void* to, const void* from, int words) {
  for (int k = THREAD; k < words; k += THREADS) ask_word((u32*)to + k, (const u32*)from + k);
}

INSIDE void ask_batch(const Span& w, const Crew& crew, const Extent& span, int batch, int low, int high, Asked to) {
  if (batch >= span.to) return;
  const Run& run = *crew.run;
  Bound from = crew.bounds[batch], end = crew.bounds[batch + 1];
  int places = end.place - from.place;
  ask_all(to.turns, run.turns + from.turn, (end.turn - from.turn) * WORDS_OF_TURN);
  ask_all(to.places, run.places + from.place, places * (int)(sizeof(Place) / 4));
  ask_all(to.numbers, run.numbers + from.place, places * (int)(sizeof(Numbers) / 4));
  if (to.slept && !LINEAR) ask_all(to.slept, run.slept + from.place, places * (int)(sizeof(Slept) / 4));
  if (!to.pulls) return;
  const float* pulls = crew.pulls + (from.place - span.place);
  for (int k = THREAD; k < (high - low) * places; k += THREADS) {
    int r = k / places, q = k % places;
    ask_word((u32*)to.pulls + r * w.seats + q, (const u32*)pulls + (low + r) * w.most_places + q);
  }
}

INSIDE bool speaks(Asked asked, int turns, int place) {
  for (int k = 0; k < turns; k++) {
    int p = place - asked.turns[k].first;
    if (p < asked.turns[k].size) return p < asked.turns[k].speakers;
  }
  return false;
}

INSIDE void sit_down(const Run& run, const Extent& span, Bound from, Bound end, int workers, Asked asked, Seat* seats, Head* heads) {
  for (int k = THREAD; k < end.turn - from.turn; k += THREADS) {
    const Turn& turn = asked.turns[k];
    Head* head = heads + k;
    head->first = turn.first - from.place;
    head->size = turn.size;
    head->flat = turn.flat;
    for (int e = 0; turn.size <= FEW && e < turn.size * turn.size; e++) head->w[e] = run.weights[turn.corner + e];
  }
  for (int q = THREAD; q < end.place - from.place; q += THREADS) {
    Seat seat = {asked.places[q].node * workers, from.place - span.place + q, asked.numbers[q].weight, 0};
    seats[q] = seat;
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

KERNEL MANY span_ahead(const Span* given) {
  const Span w = *given;
  i64 piece = BLOCK_NUMBER / w.chunks % w.pieces;
  int chunk = (int)(BLOCK_NUMBER % w.chunks);
  const Crew crew = w.all[BLOCK_NUMBER / (w.chunks * w.pieces)];
  const Run& run = *crew.run;
  const Extent span = extent_of(w, crew);
  int n = (int)run.n, m = (int)run.m, half = (m + 1) / 2, counters = (int)w.counters, most = (int)w.seats;
  int low = chunk * (int)w.together, high = low + (int)w.together < (int)crew.runs ? low + (int)w.together : (int)crew.runs;
  int count = span.places ? crew.touches[w.number] : 0, base = (int)piece * counters, workers = (int)w.together * counters;
  if (low >= high || base >= count) return;
  int columns = count - base < counters ? count - base : counters;
  const int* touched = crew.touched + w.number * w.most_entries + base;
  const int* starts = crew.starts + w.number * (m + 2);
  const Entry* entries = crew.entries + w.number * w.most_entries;
  Seat* seats = (Seat*)ROOM;
  Head* heads = (Head*)(seats + most);
  Asked asked;
  asked.turns = (Turn*)(heads + w.turns);
  asked.places = (Place*)(asked.turns + w.turns);
  asked.numbers = (Numbers*)(asked.places + most);
  asked.slept = 0;
  asked.pulls = 0;
  float* z = (float*)(asked.numbers + most);           // [node][worker]
  float* normals = z + n * workers;                    // [seat][counter]
  float* loud = normals + most * counters;             // [run][seat]
  int* cursors = (int*)(loud + (int)w.together * most);  // [worker]
  int* here = cursors + workers;                       // [counter]: its column
  ask_batch(w, crew, span, span.from, low, high, asked);
  for (int x = THREAD; x < workers; x += THREADS) {
    int r = x / counters, c = x % counters;
    if (low + r >= high || c >= columns) continue;
    int j = touched[c];
    const float* from = crew.run[low + r].z + j;
    cursors[x] = starts[j];
    for (int i = 0; i < n; i++) ask_word((u32*)z + i * workers + x, (const u32*)from + (i64)i * m);
  }
  for (int c = THREAD; c < columns; c += THREADS) here[c] = touched[c];
  int last = entries[starts[touched[0] + 1] - 1].when / 2;  // of all columns here the first is needed longest
  for (int batch = span.from; batch < span.to; batch++) {
    Bound from = crew.bounds[batch], end = crew.bounds[batch + 1];
    if (from.place - span.place > last) break;
    asked_is_here();
    BARRIER();
    int places = end.place - from.place, turns = end.turn - from.turn;
    sit_down(run, span, from, end, workers, asked, seats, heads);
    for (int k = THREAD; k < (high - low) * places; k += THREADS) {
      int r = k / places, q = k % places;
      bool loudly = speaks(asked, turns, from.place + q);
      loud[r * most + q] = loudly ? asked.numbers[q].push * crew.run[low + r].loud[asked.places[q].node] : 0.0f;
    }
    for (Cell at = first_cell(counters); at.q < places; at = next_cell(at, counters)) {
      if (at.c >= columns) continue;
      int j = here[at.c];
      float x, y;
      normal_pair(asked.places[at.q].k0, asked.places[at.q].k1, (u32)(j < half ? j : j - half), x, y);
      normals[at.q * counters + at.c] = j < half ? x : y;
    }
    BARRIER();
    ask_batch(w, crew, span, batch + 1, low, high, asked);
    for (int x = THREAD; x < workers; x += THREADS) {
      int r = x / counters, c = x % counters;
      if (low + r >= high || c >= columns || cursors[x] < 0) continue;
      const float *mine = loud + r * most, *drawn = normals + c;
      float* its = z + x;
      Light light = {cursors[x], entries[cursors[x]].when, entries, crew.unpulled + (low + r) * w.most_entries};
      for (int k = 0; k < turns; k++) {
        const Head& head = heads[k];
        int first = head.first, size = head.size;
        if (size == 2) {
          const Seat a = seats[first], b = seats[first + 1];
          const Four W = *(const Four*)head.w;
          float u = its[a.worker], v = its[b.worker];
          if (light.when >> 1 <= b.place) {
            meet(light, a, u);
            meet(light, b, v);
          }
          u += mine[first] * drawn[first * counters];
          v += mine[first + 1] * drawn[(first + 1) * counters];
          its[a.worker] = W.a * u + W.b * v;
          its[b.worker] = W.c * u + W.d * v;
          continue;
        }
        float u[FEW] = {0.0f, 0.0f, 0.0f, 0.0f}, mean = 0.0f;
        for (int p = 0; p < size; p++) {
          const Seat seat = seats[first + p];
          float v = its[seat.worker];
          meet(light, seat, v);
          v += mine[first + p] * drawn[(first + p) * counters];
          mean += v;
#pragma unroll
          for (int e = 0; e < FEW; e++)
            if (e == p) u[e] = v;
        }
        mean /= (float)size;
        for (int q = 0; q < size; q++) {
          float found = mean;
          if (!head.flat) {
            found = 0.0f;
#pragma unroll
            for (int p = 0; p < FEW; p++)
              if (p < size) found += head.w[q * size + p] * u[p];
          }
          its[seats[first + q].worker] = found;
        }
      }
      cursors[x] = light.at;
    }
  }
  asked_is_here();
}

// ---- slopes, one after the other

KERNEL span_slopes(const Span* given) {
  const Span w = *given;
  i64 runs = BLOCKS / w.crews;
  const Crew crew = w.all[BLOCK_NUMBER / runs];
  int r = (int)(BLOCK_NUMBER % runs);
  const Extent span = extent_of(w, crew);
  if (r >= crew.runs || !span.places) return;
  const Run& run = crew.run[r];
  const Entry* entries = crew.entries + w.number * w.most_entries;
  const Spot* spots = crew.spots + w.number * w.most_entries;
  const float* heard = crew.heard + w.number * w.most_places * w.most_places;
  const float* unpulled = crew.unpulled + r * w.most_entries;
  float *pulls = ROOM, *arrived = pulls + w.most_places, *coming = arrived + w.most_places;  // two rows of weights
  float* partial = coming + 2 * w.most_places;
  int* rows = (int*)(partial + 2 * WARPS);
  for (int p = THREAD; p <= span.places; p += THREADS) rows[p] = crew.rows[w.number * (w.most_places + 1) + p];
  BARRIER();
  Spot spot = {0, 0, 0.0f, 0}, next = spot;  // a thread's first of this place, of the next one; and z there
  float z = 0.0f, next_z = 0.0f;
  if (rows[0] + THREAD < rows[1]) {
    spot = spots[rows[0] + THREAD];
    z = unpulled[spot.at];
  }
  for (int p = 0; p < span.places; p++) {
    const Place& place = run.places[span.place + p];
    const Numbers at = run.numbers[span.place + p];
    const About nobody = {0.0f, 0.0f, 0.0f, 0.0f}, about = place.row >= 0 ? run.about[place.row] : nobody;
    bool more = p + 1 < span.places && rows[p + 1] + THREAD < rows[p + 2];
    float *part = partial + (p & 1) * WARPS, *weights = coming + (p & 1) * w.most_places;
    if (more) next = spots[rows[p + 1] + THREAD];
    asked_is_here();  // each thread uses what it has asked for itself
    for (int s = THREAD; s < p; s += THREADS) arrived[s] = weights[s] * pulls[s];
    BARRIER();
    if (p + 1 < span.places) ask_all(coming + ((p + 1) & 1) * w.most_places, heard + (p + 1) * w.most_places, p + 1);
    float u = 0.0f;
    for (int k = rows[p] + THREAD; k < rows[p + 1]; k += THREADS) {
      if (k >= rows[p] + THREADS) {
        spot = spots[k];
        z = unpulled[spot.at];
      }
#pragma unroll 4
      for (int e = spot.begin; e < spot.at; e++) {
        const Entry entry = entries[e];
        z += arrived[entry.when >> 1] * entry.value;
      }
      u += spot.value * primal(run, at, z);
    }
    if (more) next_z = unpulled[next.at];
    u = warp_sum(u);
    if (LANE == 0) part[WARP] = u;
    BARRIER();
    u = 0.0f;
    for (int k = 0; k < WARPS; k++) u += part[k];
    if (p % THREADS == THREAD) {  // who will need it
      pulls[p] = place.row >= 0 ? at.push * run.share[place.node] * clipped(run, u, about) : 0.0f;
      crew.pulls[r * w.most_places + p] = pulls[p];
    }
    spot = next;
    z = next_z;
  }
  asked_is_here();
}

// ---- everything, slopes being known

struct Heavy {  // two coordinates of a run on their way
  int at[2], soonest;
  Entry next[2];
  const Entry* entries;
  const Run* run;
  const Two *told, *normals;  // of its run, of its counter
  const Drowsy* drowsy;
  int counters;
};

// Sums with the rounds that a node slept. What takes a search is rare, and stands apart.
INSIDE float slept_through(const Run& run, const Drowsy& drowsy, float z, bool& between) {
  float size = fabsf(z), part = fmaf(size, drowsy.rise, -drowsy.fixed) + fmaf(size, drowsy.rise_rest, -drowsy.fixed_rest);
  bool awake = size > drowsy.far_off;
  between = between || (!awake && size > drowsy.near_by);
  return awake ? (z > 0.0f ? -part : part) : 0.0f;
}

INSIDE void catch_up(const Heavy& heavy, const Run& run, const Seat& seat, int q, Four& now) {
  if (LINEAR) {
    now.c -= seat.weight * now.a;
    now.d -= seat.weight * now.b;
    return;
  }
  const Drowsy drowsy = heavy.drowsy[q];
  bool between = BOXED;
  float more_a = slept_through(run, drowsy, now.a, between), more_b = slept_through(run, drowsy, now.b, between);
  if (between) {
    if (BOXED || fabsf(now.a) <= drowsy.far_off) more_a = searched(heavy.run->self, now.a, drowsy.before, drowsy.t);
    if (BOXED || fabsf(now.b) <= drowsy.far_off) more_b = searched(heavy.run->self, now.b, drowsy.before, drowsy.t);
  }
  now.c += more_a;
  now.d += more_b;
}

INSIDE void add_noise(const Heavy& heavy, int q, Four& now) {
  const Two told = heavy.told[q], drawn = heavy.normals[q * heavy.counters];
  now.a += told.x * drawn.x;
  now.b += told.x * drawn.y;
}

INSIDE void add_record(Heavy& heavy, const Seat& seat, int q, Four& now) {  // if there is one here
  float pull = heavy.told[q].y;
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

KERNEL MANY span_rounds(const Span* given) {
  const Span w = *given;
  int n = (int)w.all->run->n, m = (int)w.all->run->m, half = (m + 1) / 2, chunk = (int)(BLOCK_NUMBER % w.chunks);
  int counters = (int)w.counters, most = (int)w.seats, parts = (half + counters - 1) / counters;
  int base = (int)(BLOCK_NUMBER / w.chunks % parts) * counters, workers = (int)w.together * counters;
  const Crew crew = w.all[BLOCK_NUMBER / (w.chunks * parts)];
  const Run& run = *crew.run;
  const Extent span = extent_of(w, crew);
  int low = chunk * (int)w.together, high = low + (int)w.together < (int)crew.runs ? low + (int)w.together : (int)crew.runs;
  if (low >= high || !span.places) return;
  const int* starts = crew.starts + w.number * (m + 2);
  const Entry* entries = crew.entries + w.number * w.most_entries;
  Four* state = (Four*)ROOM;  // [node][worker]: z of coordinates c and half + c, and then their sums
  Seat* seats = (Seat*)(state + n * workers);
  Head* heads = (Head*)(seats + most);
  Drowsy* drowsy = (Drowsy*)(heads + w.turns);
  Asked asked;
  asked.turns = (Turn*)(drowsy + (LINEAR ? 0 : most));
  asked.places = (Place*)(asked.turns + w.turns);
  asked.numbers = (Numbers*)(asked.places + most);
  asked.slept = (Slept*)(asked.numbers + most);
  Two* normals = (Two*)(asked.slept + (LINEAR ? 0 : most));  // [seat][counter]
  Two* told = normals + most * counters;                     // [run][seat]: loudness and pull
  asked.pulls = (float*)(told + (int)w.together * most);
  int* cursors = (int*)(asked.pulls + (int)w.together * most);  // [side][worker]
  ask_batch(w, crew, span, span.from, low, high, asked);
  for (int x = THREAD; x < workers; x += THREADS) {
    int r = x / counters, c = base + x % counters;
    if (low + r >= high || c >= half) continue;
    const Run& mine = crew.run[low + r];
    bool both = half + c < m;
    cursors[x] = starts[c] < starts[c + 1] ? starts[c] : -1;
    cursors[workers + x] = both && starts[half + c] < starts[half + c + 1] ? starts[half + c] : -1;
    for (int i = 0; i < n; i++) {
      const u32 *z = (const u32*)mine.z + (i64)i * m + c, *total = (const u32*)mine.total + (i64)i * m + c;
      u32* to = (u32*)(state + i * workers + x);
      ask_word(to, z);
      ask_word(to + 2, total);
      if (both) ask_word(to + 1, z + half);
      if (both) ask_word(to + 3, total + half);
      if (!both) to[1] = to[3] = 0u;
    }
  }
  for (int batch = span.from; batch < span.to; batch++) {
    Bound from = crew.bounds[batch], end = crew.bounds[batch + 1];
    asked_is_here();
    BARRIER();
    int places = end.place - from.place, turns = end.turn - from.turn;
    sit_down(run, span, from, end, workers, asked, seats, heads);
    for (int k = THREAD; k < (high - low) * places; k += THREADS) {
      int r = k / places, q = k % places, at = r * most + q;
      bool loudly = speaks(asked, turns, from.place + q);
      Two both = {loudly ? asked.numbers[q].push * crew.run[low + r].loud[asked.places[q].node] : 0.0f, asked.pulls[at]};
      told[at] = both;
    }
    for (int q = THREAD; !LINEAR && q < places; q += THREADS) {
      const Slept slept = asked.slept[q];
      float rise = (float)slept.rise, fixed = (float)slept.fixed;
      float rise_rest = (float)(slept.rise - (double)rise), fixed_rest = (float)(slept.fixed - (double)fixed);
      Drowsy found = {rise, rise_rest, fixed, fixed_rest, slept.near_by, slept.far_off, asked.places[q].before, asked.places[q].t};
      drowsy[q] = found;
    }
    for (Cell at = first_cell(counters); at.q < places; at = next_cell(at, counters)) {
      Two drawn;
      normal_pair(asked.places[at.q].k0, asked.places[at.q].k1, (u32)(base + at.c), drawn.x, drawn.y);
      normals[at.q * counters + at.c] = drawn;
    }
    BARRIER();
    ask_batch(w, crew, span, batch + 1, low, high, asked);
    for (int x = THREAD; x < workers; x += THREADS) {
      int r = x / counters, c = x % counters;
      if (low + r >= high || base + c >= half) continue;
      Four* its = state + x;
      Heavy heavy;
      heavy.entries = entries;
      heavy.run = crew.run + low + r;
      heavy.told = told + r * most;
      heavy.normals = normals + c;
      heavy.drowsy = drowsy;
      heavy.counters = counters;
#pragma unroll
      for (int side = 0; side < 2; side++) {
        heavy.at[side] = cursors[side * workers + x];
        heavy.next[side].when = NEVER;
        heavy.next[side].value = 0.0f;
        if (heavy.at[side] >= 0) heavy.next[side] = entries[heavy.at[side]];
      }
      heavy.soonest = (heavy.next[0].when < heavy.next[1].when ? heavy.next[0].when : heavy.next[1].when) >> 1;
      for (int k = 0; k < turns; k++) {
        const Head& head = heads[k];
        int first = head.first, size = head.size;
        if (size == 2) {
          const Seat a = seats[first], b = seats[first + 1];
          const Four W = *(const Four*)head.w;
          Four u = its[a.worker], v = its[b.worker];
          catch_up(heavy, run, a, first, u);
          catch_up(heavy, run, b, first + 1, v);
          add_noise(heavy, first, u);
          add_noise(heavy, first + 1, v);
          if (heavy.soonest <= b.place) {
            add_record(heavy, a, first, u);
            add_record(heavy, b, first + 1, v);
          }
          Four mixed_u = {W.a * u.a + W.b * v.a, W.a * u.b + W.b * v.b, u.c, u.d};
          Four mixed_v = {W.c * u.a + W.d * v.a, W.c * u.b + W.d * v.b, v.c, v.d};
          its[a.worker] = mixed_u;
          its[b.worker] = mixed_v;
          continue;
        }
        Two u[FEW], mean = {0.0f, 0.0f};
#pragma unroll
        for (int e = 0; e < FEW; e++) u[e] = mean;
        for (int p = 0; p < size; p++) {
          const Seat seat = seats[first + p];
          Four v = its[seat.worker];
          catch_up(heavy, run, seat, first + p, v);
          add_noise(heavy, first + p, v);
          if (heavy.soonest == seat.place) add_record(heavy, seat, first + p, v);
          Two said = {v.a, v.b}, sums = {v.c, v.d};
          ((Two*)(its + seat.worker))[1] = sums;
          mean.x += v.a;
          mean.y += v.b;
#pragma unroll
          for (int e = 0; e < FEW; e++)
            if (e == p) u[e] = said;
        }
        mean.x /= (float)size;
        mean.y /= (float)size;
        for (int q = 0; q < size; q++) {
          Two found = mean;
          if (!head.flat) {
            found.x = found.y = 0.0f;
#pragma unroll
            for (int p = 0; p < FEW; p++)
              if (p < size) {
                found.x += head.w[q * size + p] * u[p].x;
                found.y += head.w[q * size + p] * u[p].y;
              }
          }
          *(Two*)(its + seats[first + q].worker) = found;
        }
      }
#pragma unroll
      for (int side = 0; side < 2; side++) cursors[side * workers + x] = heavy.at[side];
    }
  }
  asked_is_here();
  for (int x = THREAD; x < workers; x += THREADS) {
    int r = x / counters, c = base + x % counters;
    if (low + r >= high || c >= half) continue;
    const Run& mine = crew.run[low + r];
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
