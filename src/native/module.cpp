// What Python sees: records and runs whose arrays were checked once, and the loops over them
// without the GIL.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>

#include "pool.hpp"

namespace nb = nanobind;

namespace sottovoce {

#define DECLARE(name)           \
  namespace name {              \
  extern const Kernels kernels; \
  }
#if defined(KERNELS_base)
DECLARE(base)
#else
DECLARE(v2)
DECLARE(v3)
DECLARE(v4)
#endif

namespace {

// --- instruction sets

struct InstructionSet {
  const char* name;
  const Kernels* kernels;
};

std::vector<InstructionSet> supported() {
  std::vector<InstructionSet> found;
#if defined(KERNELS_base)
  found.push_back({"base", &base::kernels});
#else
  __builtin_cpu_init();
  found.push_back({"x86-64-v2", &v2::kernels});
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                    __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
                      __builtin_cpu_supports("avx512vl");
  if (avx2) found.push_back({"x86-64-v3", &v3::kernels});
  if (avx2 && avx512) found.push_back({"x86-64-v4", &v4::kernels});
#endif
  return found;
}

InstructionSet& chosen() {
  static InstructionSet set = supported().back();
  return set;
}

const Kernels& kernels() { return *chosen().kernels; }

void use(const std::string& name) {
  for (const auto& set : supported())
    if (name == set.name) {
      chosen() = set;
      return;
    }
  throw nb::value_error(
      ("this processor has no instruction set '" + name + "'; see instruction_sets()").c_str());
}

// --- arrays

void check(bool right, const char* what) {
  if (!right) throw nb::value_error(what);
}

void check(bool right, const std::string& what) { check(right, what.c_str()); }

template <class T>
using Array = nb::ndarray<T, nb::c_contig, nb::device::cpu>;
using Words = Array<const u64>;
using Reals = Array<const double>;
using Whole = Array<const i64>;

template <class T>
Array<T> array_of(nb::handle of, const char* name, i64 size = -1) {
  Array<T> found;
  if (!nb::try_cast(nb::getattr(of, name), found, false))
    throw nb::type_error(
        (std::string(name) + " must be a contiguous array of another type").c_str());
  check(size < 0 || i64(found.size()) == size, std::string(name) + " must have " +
                                                   std::to_string(size) + " numbers, not " +
                                                   std::to_string(found.size()));
  return found;
}

template <class T>
i64 size_of(nb::handle of, const char* name) {
  return i64(array_of<const T>(of, name).size());
}

template <class T>
T number(nb::handle of, const char* name) {
  return nb::cast<T>(nb::getattr(of, name));
}

// Fills several places from fields of an object that outlives them: numbers, and arrays with or
// without their size.
struct Fields {
  nb::handle of;
  template <class T>
  const Fields& operator()(const char* name, T& place) const {
    return place = number<T>(of, name), *this;
  }
  template <class T>
  const Fields& operator()(const char* name, const T*& place, i64 size = -1) const {
    return place = array_of<const T>(of, name, size).data(), *this;
  }
  // Null for an empty one; gives its size.
  template <class T>
  i64 any(const char* name, const T*& place, i64 size = -1) const {
    const i64 count = size_of<T>(of, name);
    if (count) (*this)(name, place, size);
    return count;
  }
};

// One of an enumeration's values, checked before it is made one.
template <class E>
E choice(int value, E last, const char* what) {
  check(value >= 0 && value <= int(last), std::string("there is no such ") + what);
  return E(value);
}

Objective objective_of(int loss, double parameter, i64 outputs) {
  check(outputs > 0 && (outputs > 1 || loss != SOFTMAX), "the loss needs other outputs");
  return {choice(loss, SOFTMAX, "loss"), parameter, outputs};
}

Objective objective_of(nb::handle of) {
  return objective_of(number<int>(of, "loss"), number<double>(of, "parameter"),
                      number<i64>(of, "outputs"));
}

void check_rising(const i64* values, i64 count, i64 most, const char* what) {
  check(count > 0 && values[0] >= 0 && values[count - 1] <= most, what);
  for (i64 e = 1; e < count; e++) check(values[e - 1] <= values[e], what);
}

template <class T>
void check_below(const T* values, i64 count, i64 limit, const char* what) {
  for (i64 e = 0; e < count; e++) check(values[e] >= 0 && i64(values[e]) < limit, what);
}

class Arena {
 public:
  template <class T>
  T* take(i64 count) {
    blocks_.emplace_back(new char[size_t(std::max<i64>(count, 1)) * sizeof(T) + 4096 + 128]());
    auto at = reinterpret_cast<std::uintptr_t>(blocks_.back().get());
    return reinterpret_cast<T*>((at + 63) / 64 * 64);
  }
  template <class T>
  Arena& operator()(T*& place, i64 count) {
    return place = take<T>(count), *this;
  }

 private:
  std::vector<std::unique_ptr<char[]>> blocks_;
};

// --- records

struct Records {
  Data data{};
  i64 widest = 0;  // stored numbers of the unit that has most
  nb::object keep;

  explicit Records(nb::object of) : keep(of) {
    const Fields fields{of};
    data.rows = size_of<double>(of, "y");
    fields("features", data.features)("intercept", data.intercept)("y", data.y)("norms", data.norms,
                                                                                data.rows);
    check(data.features >= 0, "features must not be negative");
    Array<const float> single;
    const bool is_single = nb::try_cast(nb::getattr(of, "values"), single, false);
    if (is_single) {
      data.values = single.data(), data.entries = i64(single.size());
    } else {
      const auto wide = array_of<const double>(of, "values");
      data.values = wide.data(), data.entries = i64(wide.size());
    }
    const bool sparse = number<bool>(of, "sparse");
    data.storage = sparse ? (is_single ? CSR32 : CSR64) : (is_single ? DENSE32 : DENSE64);
    if (sparse) {
      fields("indptr", data.indptr, data.rows + 1)("indices", data.indices, data.entries);
      check_rising(data.indptr, data.rows + 1, data.entries,
                   "indptr must rise from 0 to the number of values");
      check_below(data.indices, data.entries, data.features,
                  "indices must be below the number of features");
    }
    check(sparse || data.entries == data.rows * data.features,
          "dense values must have a row of `features` numbers for each target");
    fields.any("weights", data.weights, data.rows);
    take_places(fields);
  }

  void take_places(const Fields& fields) {
    const i64 listed = fields.any("order", data.order), places = listed ? listed : data.rows;
    check_below(data.order, listed, data.rows, "order must name rows");
    const i64 starts = fields.any("starts", data.starts), units = starts ? starts - 1 : places;
    if (starts)
      check_rising(data.starts, starts, places, "starts must rise to the number of places");
    data.longest = 1;
    for (i64 unit = 0; unit < units && starts; unit++) {
      data.longest = std::max(data.longest, data.starts[unit + 1] - data.starts[unit]);
      check(data.starts[unit] < data.starts[unit + 1], "every unit must have a row");
      i64 entries = 0;
      for (i64 at = data.starts[unit]; at < data.starts[unit + 1] && data.indptr; at++) {
        const i64 row = data.order ? data.order[at] : at;
        entries += data.indptr[row + 1] - data.indptr[row] + 1;
      }
      widest = std::max(widest, entries);
    }
    data.nodes = fields.any("offsets", data.offsets) - 1;
    check_rising(data.offsets, data.nodes + 1, units, "offsets must rise to the number of units");
    for (i64 node = 0; node < data.nodes; node++)
      data.most = std::max(data.most, data.offsets[node + 1] - data.offsets[node]);
  }

  i64 stride() const { return std::max(BATCH, data.longest); }
};

// --- runs

struct Run {
  Job job{};
  nb::object keep;
  double work = 0.0;  // numbers that a round reads and draws

  Run(nb::handle records, nb::handle plan, nb::handle model, nb::handle steps, nb::handle noise,
      i64 m)
      : keep(nb::make_tuple(records, plan, model, steps, noise)) {
    job.data = nb::cast<const Records&>(records).data;
    job.nodes = job.data.nodes, job.m = m;
    take_model(model);
    take_steps(steps);
    take_noise(noise);
    take_plan(plan);
    check(m > 0 && m == job.model.loss.outputs * (job.data.features + (job.data.intercept != 0.0)),
          "m must be the number of features and of the intercept, for each output");
    choose_loops();
  }

  void take_model(nb::handle of) {
    Model& model = job.model;
    const i64 R = job.runs = size_of<double>(of, "clip");
    check(R > 0, "there must be a run");
    model.kind = choice(number<int>(of, "kind"), ENTROPY, "kind of step");
    model.loss = objective_of(of);
    Fields{of}("phi", model.phi, R)("mu", model.mu, R)("lo", model.lo, R)("hi", model.hi, R)(
        "radius", model.radius, R)("clip", model.clip, R)("curvature", model.curvature)(
        "closed", model.closed)("frozen", model.frozen)("descent", model.descent)("after",
                                                                                  model.after);
    Fields{of}.any("center", model.centre, job.m);
  }

  void take_steps(nb::handle of) {
    Steps& steps = job.steps;
    const i64 distinct = number<i64>(of, "distinct");
    steps.T = distinct > 0 ? size_of<double>(of, "push") / distinct : 0;
    check(distinct > 0 && steps.T > 0, "there must be a sequence of steps");
    const i64 rounds = distinct * steps.T, sums = distinct * (steps.T + 1);
    Fields{of}("push", steps.push, rounds)("a", steps.a, rounds)("gamma", steps.gamma, rounds)(
        "s", steps.s, rounds)("A", steps.A, sums)("P", steps.P, sums)("Q", steps.Q, sums)(
        "which", steps.which, job.runs);
    check_below(steps.which, job.runs, distinct, "`which` must name a sequence of steps");
  }

  void take_noise(nb::handle of) {
    Noise& noise = job.noise;
    const i64 n = job.nodes, all = job.runs * n;
    noise.sampler = choice(number<int>(of, "sampler"), INJECTED, "sampler");
    Fields{of}("batch", noise.batch, n)("gap_scale", noise.gap_scale, n)("sigma", noise.sigma, all)(
        "scale", noise.scale, all)("noisy", noise.noisy, n)("pairs", noise.pairs)("level",
                                                                                  noise.level);
    const u32 *noise_key, *records_key;
    Fields{of}("noise_key", noise_key, 2)("records_key", records_key, 2);
    if (noise.pairs) Fields{of}("shared", noise.shared, all);
    std::copy_n(noise_key, 2, noise.noise_key), std::copy_n(records_key, 2, noise.records_key);
    for (i64 i = 0; i < n; i++) {
      const i64 q = job.data.offsets[i + 1] - job.data.offsets[i];
      check(noise.batch[i] > 0 &&
                (noise.batch[i] <= q || noise.sampler == INJECTED || noise.sampler == CYCLIC),
            "a batch must have a record, and no more than the node has");
      check(noise.sampler != POISSON || noise.batch[i] == q || noise.gap_scale[i] < 0.0,
            "gaps must be longer than nothing");
    }
  }

  void take_plan(nb::handle of) {
    Plan& plan = job.plan;
    plan.averaging = choice(number<int>(of, "averaging"), TRIMMED, "averaging");
    plan.rounds = size_of<i64>(of, "starts") - 1;
    const i64 patterns = size_of<i64>(of, "corners"), weights = size_of<double>(of, "weights");
    const i64 active = size_of<i32>(of, "active");
    Fields{of}("bound", plan.bound)("speakers", plan.speakers)("widest", plan.widest)(
        "starts", plan.starts)("corners", plan.corners)("flat", plan.flat, patterns)(
        "active", plan.active)("pattern", plan.pattern, plan.rounds)("weights", plan.weights);
    check_rising(plan.starts, plan.rounds + 1, active,
                 "the rounds' starts must rise to the number of active nodes");
    check_below(plan.active, active, job.nodes, "active nodes must be nodes");
    check_below(plan.pattern, plan.rounds, patterns, "every round must have a pattern");
    check(plan.bound >= 0.0 && plan.bound < 0x1p52,
          "the bound of averages must be a number, and not negative");
    std::vector<i64> seen(size_t(job.nodes), -1);
    for (i64 t = 0; t < plan.rounds; t++) {
      for (i64 at = plan.starts[t]; at < plan.starts[t + 1]; at++) {
        check(seen[size_t(plan.active[at])] != t, "a node can be active only once in a round");
        seen[size_t(plan.active[at])] = t;
      }
      const i64 k = plan.starts[t + 1] - plan.starts[t], corner = plan.corners[plan.pattern[t]];
      check(k <= plan.widest && corner >= 0 && corner + k * k <= weights,
            "a pattern must have all its weights");
    }
  }

  void choose_loops() {
    const Data& data = job.data;
    const Model& model = job.model;
    bool free = model.kind == SEPARABLE;
    for (i64 r = 0; r < job.runs; r++)
      free = free && model.phi[r] == 0.0 && std::isinf(model.lo[r]) && std::isinf(model.hi[r]);
    i64 largest = 0, least = INT64_MAX, records = 0;
    for (i64 i = 0; i < job.nodes; i++) {
      const i64 b = job.noise.batch[i];
      largest = std::max(largest, b), least = std::min(least, b), records += b;
    }
    job.edges = job.plan.averaging == MATRIX && !job.noise.pairs && model.loss.outputs == 1 &&
                !data.starts && !model.centre && model.curvature == 0.0 &&
                (model.descent || free) && largest <= FEW;
    // how many parts there are follows from the data alone, and so does every number that comes out
    const double units = double(data.offsets[job.nodes] - data.offsets[0]);
    const double entries = double(data.entries) / std::max(1.0, units) * double(model.loss.outputs);
    const double worth = double(least) * entries / (32.0 * double(job.m));
    const bool few = job.edges && job.plan.widest == 2;
    job.parts = job.plan.widest < 8 && !few
                    ? i64(std::min(8.0, std::max(worth, worth >= 1.0 ? 2.0 : 1.0)))
                    : 1;
    const double rounds = double(std::max<i64>(1, job.plan.rounds));
    const double share = double(job.plan.starts[job.plan.rounds]) / rounds / double(job.nodes);
    work = few ? 0.0 : share * (double(records) * entries + double(job.nodes) * double(job.m));
  }

  i64 threads(i64 most) const {
    return work >= double(1 << 17)
               ? std::max<i64>(1, std::min(most, std::max(job.parts, job.plan.widest)))
               : 1;
  }

  Scratch make_scratch(Arena& arena) const {
    const Data& data = job.data;
    const auto& records = nb::cast<const Records&>(nb::handle(nb::tuple(keep)[0]));
    const i64 stride = records.stride(), K = job.model.loss.outputs, m = job.m,
              touched = K * records.widest;
    Scratch s;
    arena(s.x, m)(s.y, m)(s.g, m)(s.picks, data.most)(s.taken, data.most)(s.rows, stride)(
        s.begins, stride + 1)(s.u, K * stride)(s.known, (K + 3) * stride)(s.sizes, stride)(
        s.mean, data.starts ? m : 0)(s.values, touched)(s.places, touched)(s.normals, 2 * BLOCK)(
        s.sums, 2 * BLOCK)(s.mixed, job.plan.widest * BLOCK)(s.heard, job.plan.widest);
    return s;
  }

  Spots make_spots(Arena& arena) const {
    const i64 k = job.plan.widest, m = job.m, R = job.runs, most = job.edges ? job.data.most : 0;
    Spots s;
    arena(s.before, k)(s.keys, 2 * k)(s.pair_keys, 2 * k)(s.held, job.model.after ? R * k * m : 0)(
        s.wide, job.plan.averaging != MATRIX ? k * m : 0)(
        s.parts, job.parts * ((m + 511) / 512 * 512))(s.counts, 2)(s.rows, 2 * most)(
        s.pulls, 2 * R * most)(s.since, job.nodes)(s.edges, R);
    return s;
  }

  void check_rounds(i64 start, i64 stop) const {
    check(start >= 1 && start <= stop + 1 && stop <= job.steps.T,
          "these rounds are beyond the steps");
  }

  void rounds(Array<double> z, Array<double> total, Array<i64> since, i64 start, i64 stop, i64 most,
              nb::object injected) const {
    const i64 size = job.runs * job.nodes * job.m;
    check_rounds(start, stop);
    check(stop <= job.plan.rounds && i64(z.size()) == size && i64(total.size()) == size &&
              i64(since.size()) == job.nodes,
          "the state must be that of the runs, and the rounds must be in the plan");
    for (i64 i = 0; i < job.nodes; i++)
      check(since.data()[i] >= 1 && since.data()[i] <= std::max<i64>(start, 1),
            "the state must be one from before the rounds");
    Job mine = job;
    Injected given{};
    if (!injected.is_none()) take_injected(injected, given, mine, start, stop);
    check(!injected.is_none() || job.noise.sampler != INJECTED,
          "this run needs draws that are given");
    const i64 count = threads(most);
    Arena arena;
    std::vector<Scratch> scratch;
    for (i64 thread = 0; thread < count; thread++) scratch.push_back(make_scratch(arena));
    Rounds all{};
    all.job = &mine, all.injected = injected.is_none() ? nullptr : &given;
    all.scratch = scratch.data(), all.spots = make_spots(arena);
    all.z = z.data(), all.total = total.data(), all.since = since.data();
    all.start = start, all.stop = stop;
    nb::gil_scoped_release released;
    std::unique_ptr<Pool> pool(count > 1 ? new Pool(int(count)) : nullptr);
    all.pool = pool.get();
    kernels().run_rounds(all);
  }

  void take_injected(nb::handle of, Injected& given, Job& mine, i64 start, i64 stop) const {
    const i64 *starts = job.plan.starts, places = starts[stop] - starts[start - 1];
    Fields{of}("noise", given.noise, places * job.m)("starts", given.starts, places + 1)(
        "every", given.every, places)("records", given.records);
    check_rising(given.starts, places + 1, size_of<i64>(of, "records"),
                 "the records' starts must rise to their number");
    for (i64 place = 0; place < places; place++) {
      const i64 node = job.plan.active[starts[start - 1] + place];
      const i64 q = job.data.offsets[node + 1] - job.data.offsets[node];
      check(given.starts[place + 1] - given.starts[place] <= q, "no node has as many records");
      check_below(given.records + given.starts[place],
                  given.starts[place + 1] - given.starts[place], q, "the node has no such record");
    }
    mine.edges = false;
  }

  void equal(Array<double> z, Array<double> total, i64 before, i64 start, i64 stop) const {
    const i64 R = job.runs, size = R * job.m;
    check_rounds(start, stop);
    check(i64(z.size()) == size && i64(total.size()) == size && before >= 0 && before < start,
          "one row for each run");
    check(job.noise.sampler != INJECTED, "this run's draws must be made from counters");
    Arena arena;
    Scratch scratch = make_scratch(arena);
    Equal all{};
    all.job = &job, all.scratch = &scratch, all.z = z.data(), all.total = total.data();
    all.before = before, all.start = start, all.stop = stop;
    arena(all.x, size)(all.g, size)(all.factors, R * BATCH)(all.loud, R * BLOCK)(all.rows, BATCH);
    nb::gil_scoped_release released;
    kernels().run_equal(all);
  }

  bool apart(nb::handle links, Array<double> s, Array<double> other, Array<double> total,
             i64 before, i64 start, i64 stop) const {
    const i64 R = job.runs, n = job.nodes, width = R * n ? i64(s.size()) / (R * n) : 0;
    const i64 entries = size_of<i64>(links, "places");
    Links all{};
    Fields{links}("starts", all.starts, n + 1)("places", all.places)("values", all.values, entries)(
        "level", all.level)("mixes", all.mixes)("times", all.times);
    check_rounds(start, stop);
    check_rising(all.starts, n + 1, entries, "the links' starts must rise to their number");
    check_below(all.places, entries, n, "links must lead to nodes");
    check(size_of<bool>(links, "mixes") >= stop && all.times >= 1 && before >= 0 && before < start,
          "rounds that mix");
    check(width >= job.m && i64(s.size()) == R * n * width && other.size() == s.size() &&
              i64(total.size()) == R * n * job.m && job.noise.sampler != INJECTED,
          "a row for each run and node");
    Arena arena;
    Scratch scratch = make_scratch(arena);
    Apart rounds{};
    rounds.job = &job, rounds.links = &all, rounds.scratch = &scratch, rounds.width = width;
    rounds.s = s.data(), rounds.other = other.data(), rounds.total = total.data();
    rounds.before = before, rounds.start = start, rounds.stop = stop;
    arena(rounds.x, job.m)(rounds.sums, R * width);
    nb::gil_scoped_release released;
    return kernels().run_apart(rounds);
  }
};

// --- secure releases

double exact_sums(const Records& records, nb::handle of, Reals models, Array<i64> totals) {
  Sums sums{};
  sums.data = records.data, sums.loss = objective_of(of);
  const i64 rows = records.data.rows, K = sums.loss.outputs;
  sums.m = K * (records.data.features + (records.data.intercept != 0.0));
  sums.pairs = size_of<i64>(of, "base");
  Fields{of}("caps", sums.caps, rows)("reach", sums.reach, rows)("step", sums.step)(
      "limit", sums.limit)("inverse", sums.inverse)("whole", sums.whole)("length", sums.length)(
      "base", sums.base)("sizes", sums.sizes, sums.pairs)("starts", sums.starts, sums.pairs)(
      "picks", sums.picks);
  sums.slope = 1.0 / sums.inverse;
  sums.models = models.data(), sums.totals = totals.data();
  const i64 picks = size_of<i64>(of, "picks"), units = records.data.offsets[records.data.nodes];
  check(sums.step > 0 && sums.step <= 1 << 20 && sums.limit >= sums.step,
        "a block has a row, and no more than can be summed");
  check(i64(models.size()) == sums.pairs * sums.m && i64(totals.size()) == sums.pairs * sums.m,
        "a row for each pair");
  for (i64 p = 0; p < sums.pairs; p++) {
    const i64 base = sums.base[p], size = sums.sizes[p], first = sums.starts[p];
    check(base >= 0 && size >= 0 && base <= units &&
              (first < 0 ? base + size <= units : first + size <= picks),
          "the units of a pair must be there");
    for (i64 e = 0; e < size && first >= 0; e++)
      check(sums.picks[first + e] >= 0 && base + sums.picks[first + e] < units,
            "the units of a pair must be there");
  }
  const i64 stride = std::max(sums.step, records.data.longest),
            touched = std::max(K * records.widest, sums.m);
  Arena arena;
  SumsScratch scratch;
  arena(scratch.x, sums.m)(scratch.wide, sums.m)(scratch.u, K * stride)(scratch.y, 3 * stride)(
      scratch.spare, std::max(K * stride, sums.m))(scratch.sizes, K * stride)(scratch.near, sums.m)(
      scratch.slopes, K + touched)(scratch.rows, stride)(scratch.begins, stride + 1)(
      scratch.places, touched)(scratch.folded, touched);
  nb::gil_scoped_release released;
  return kernels().exact_sums(sums, scratch);
}

void add_noise(decltype(Kernels::add_gaussian) add, Words words, Reals scales, Whole rows,
               i64 first, Array<double> out, bool pairs) {
  check(out.ndim() == 2 && words.ndim() == 2 && words.shape(1) % 2 == 0,
        "words and noise must have rows");
  const i64 releases = i64(rows.size()), count = i64(words.shape(1)) / 2, m = i64(out.shape(1));
  check(i64(words.shape(0)) == releases && i64(scales.size()) == releases,
        "a row of words for each release");
  check(first >= 0 && first + count <= (pairs ? (m + 1) / 2 : m),
        "the words must fit the coordinates");
  check_below(rows.data(), releases, i64(out.shape(0)), "releases must be rows of the noise");
  nb::gil_scoped_release released;
  add(words.data(), count, scales.data(), rows.data(), releases, first, out.data(), m);
}

void add_gaussian(Words words, Reals scales, Whole rows, i64 first, Array<double> out) {
  add_noise(kernels().add_gaussian, words, scales, rows, first, out, true);
}

void add_laplace(Words words, Reals scales, Whole rows, i64 first, Array<double> out) {
  add_noise(kernels().add_laplace, words, scales, rows, first, out, false);
}

i64 poisson_gaps(Words words, Reals scales, Whole sizes, double error, u64 small, Array<i64> gaps) {
  const i64 count = i64(scales.size()), width = count ? i64(words.size()) / count : 0;
  check(i64(words.size()) == count * width && gaps.size() == words.size() &&
            i64(sizes.size()) == count,
        "a row for each pair");
  nb::gil_scoped_release released;
  return kernels().poisson_gaps(words.data(), count, width, scales.data(), sizes.data(), error,
                                small, gaps.data());
}

i64 released_rows(Whole sums, Whole shifts, Reals noise, Reals error, Reals grids, Whole rows,
                  Reals over, Array<double> out) {
  const i64 count = i64(shifts.size()), m = count ? i64(sums.size()) / count : 0,
            all = i64(grids.size());
  check(i64(sums.size()) == count * m && i64(noise.size()) == all * m &&
            out.size() == sums.size() && i64(error.size()) == all && i64(rows.size()) == count &&
            i64(over.size()) == count,
        "a row for each release");
  check_below(rows.data(), count, all, "releases must be rows of the noise");
  check_below(shifts.data(), count, 63, "shifts must be below 63");
  nb::gil_scoped_release released;
  return kernels().released_rows(sums.data(), shifts.data(), noise.data(), error.data(),
                                 grids.data(), rows.data(), over.data(), count, m, out.data());
}

// --- single loops

void normal_rows(Array<const u32> key, Whole nodes, Whole rounds, Array<float> out) {
  const i64 count = i64(nodes.size()), m = count ? i64(out.size()) / count : 0;
  check(key.size() == 2 && rounds.size() == nodes.size() && i64(out.size()) == count * m,
        "a row for each (node, round)");
  nb::gil_scoped_release released;
  kernels().normal_rows(key.data()[0], key.data()[1], nodes.data(), rounds.data(), count, m,
                        out.data());
}

i64 draw_records(int sampler, Array<const u32> key, i64 node, i64 t, i64 q, i64 b, double gap_scale,
                 Array<i64> out) {
  check(key.size() == 2 && t >= 1 && 0 < b && b <= q && i64(out.size()) >= q,
        "a batch of a node's records");
  check(sampler != POISSON || b == q || gap_scale < 0.0, "gaps must be longer than nothing");
  std::unique_ptr<bool[]> taken(new bool[size_t(q)]());
  return kernels().draw_records(choice(sampler, CYCLIC, "sampler"), key.data(), node, t, q, b,
                                gap_scale, out.data(), q, taken.get());
}

void slopes(int loss, double parameter, Array<double> u, Reals y) {
  const i64 count = i64(y.size()), outputs = count ? i64(u.size()) / count : 1;
  check(i64(u.size()) == count * outputs, "margins of each target");
  std::vector<double> spare(u.size());
  kernels().slopes(objective_of(loss, parameter, outputs), u.data(), y.data(), count, count,
                   spare.data());
}

void exp_of(Array<double> v) { kernels().exp_of(v.data(), i64(v.size())); }

double put_on_grid(Reals x, i64 columns, Array<double> out) {
  check(out.size() == x.size() && columns >= 1 && columns <= i64(x.size()),
        "as many numbers as the model has");
  return kernels().put_on_grid(x.data(), i64(x.size()), columns, out.data());
}

void dual_pass(const Records& records, nb::handle of, Whole rows, Array<double> s, Array<double> z,
               Array<double> x) {
  Dual dual{};
  dual.data = records.data;
  const i64 count = records.data.rows, m = records.data.features + (records.data.intercept != 0.0);
  dual.rows = rows.data(), dual.count = i64(rows.size());
  check_below(dual.rows, dual.count, count, "rows must be there");
  check(i64(s.size()) == count && i64(z.size()) == m && i64(x.size()) == m,
        "a slope for each row, and a model");
  Fields{of}("y", dual.y, count)("w", dual.w, count)("steps", dual.steps, count)(
      "low", dual.low, count)("high", dual.high, count)("curvature", dual.curvature)(
      "entropy", dual.entropy)("phi", dual.phi)("scale", dual.scale)("lo", dual.lo)("hi", dual.hi);
  dual.s = s.data(), dual.z = z.data(), dual.x = x.data();
  nb::gil_scoped_release released;
  kernels().dual_pass(dual);
}

std::vector<std::string> instruction_sets() {
  std::vector<std::string> names;
  for (const auto& set : supported()) names.emplace_back(set.name);
  return names;
}

// Binds a function with arrays that are taken as they are: a copy would not be written back.
template <class A>
auto argument() {
  if constexpr (std::is_arithmetic_v<A>)
    return nb::arg();
  else
    return nb::arg().noconvert();
}

template <class Scope, class R, class... A>
void bind(Scope& scope, const char* name, R (*function)(A...)) {
  scope.def(name, function, argument<A>()...);
}

template <class Scope, class C, class R, class... A>
void bind(Scope& scope, const char* name, R (C::*function)(A...) const) {
  scope.def(name, function, argument<A>()...);
}

}  // namespace
}  // namespace sottovoce

NB_MODULE(_native, module) {
  using namespace sottovoce;
  nb::class_<Records>(module, "Records").def(nb::init<nb::object>());
  nb::class_<Run> run(module, "Run");
  run.def(nb::init<nb::handle, nb::handle, nb::handle, nb::handle, nb::handle, i64>());
  run.def("rounds", &Run::rounds, nb::arg().noconvert(), nb::arg().noconvert(),
          nb::arg().noconvert(), nb::arg(), nb::arg(), nb::arg(), nb::arg().none() = nb::none());
  bind(run, "equal", &Run::equal);
  bind(run, "apart", &Run::apart);
  bind(run, "threads", &Run::threads);
  run.def_prop_rw(
      "parts", [](const Run& of) { return of.job.parts; },
      [](Run& of, i64 parts) {
        check(parts >= 1 && parts <= 64, "parts must be from 1 to 64");
        of.job.parts = parts;
      });
  run.def_prop_rw(
      "edges", [](const Run& of) { return of.job.edges; },
      [](Run& of, bool edges) {
        check(!edges, "the loop of edges can only be left out");
        of.job.edges = edges;
      });
  run.def_rw("work", &Run::work);
  bind(module, "exact_sums", &exact_sums);
  bind(module, "add_gaussian", &add_gaussian);
  bind(module, "add_laplace", &add_laplace);
  bind(module, "poisson_gaps", &poisson_gaps);
  bind(module, "released_rows", &released_rows);
  bind(module, "normal_rows", &normal_rows);
  bind(module, "draw_records", &draw_records);
  bind(module, "slopes", &slopes);
  bind(module, "exp", &exp_of);
  bind(module, "put_on_grid", &put_on_grid);
  bind(module, "dual_pass", &dual_pass);
  module.def("instruction_sets", &instruction_sets);
  module.def("instruction_set", [] { return std::string(chosen().name); });
  module.def("use", &use);
}
