// All loops, compiled once for each instruction set. No other header's templates are used here: a
// copy of one that was compiled for a newer processor could be taken for all.
#include "dual.hpp"
#include "many.hpp"
#include "rounds.hpp"
#include "secure.hpp"

#ifndef INSTRUCTION_SET
#define INSTRUCTION_SET base
#endif

namespace sottovoce {
namespace {

void exp_of(double* v, i64 count) {
  for (i64 e = 0; e < count; e++) v[e] = exponential(v[e]);
}

}  // namespace

namespace INSTRUCTION_SET {

extern const Kernels kernels;
const Kernels kernels = {run_rounds,    run_equal,  run_apart,    normal_rows, draw_records,
                         slopes,        exact_sums, add_gaussian, add_laplace, poisson_gaps,
                         released_rows, exp_of,     put_on_grid,  dual_pass};

}  // namespace INSTRUCTION_SET
}  // namespace sottovoce
