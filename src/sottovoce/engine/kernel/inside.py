"""Functions that only other functions of the kernel call: brought into LLVM's language, and no further.

Numba optimises every function by itself and makes machine code of it; and does both again in each that calls it, for
what a caller takes over is the callee in LLVM's language, with all that the callee took over. Of functions that Python
cannot call, the former is never run, and five levels of them are optimised five times. So both are left to the entry
points, which saves two fifths of the time that compiling takes; what runs gives the same numbers in the same time.
"""

from typing import Any

import numba
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import register_pass
from numba.core.typed_passes import NativeLowering


class _Unfinished(JITCodeLibrary):
    """A function in LLVM's language, ready to be linked into others."""

    def _optimize_final_module(self) -> None:
        """Who calls it does."""

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._verify_declare_only_symbols()
        self._finalized = True

    def get_pointer_to_function(self, name: str) -> int:
        """There is no machine code to point to; so Numba says it of a function without a wrapper for Python."""
        self._ensure_finalized()
        return 0

    @property
    def codegen(self) -> Any:
        """Who would tell the machine code where its environment is."""
        return self

    def set_env(self, name: str, environment: Any) -> None:
        """There is none to be told."""


@register_pass(mutates_CFG=True, analysis_only=False)
class _Lowering(NativeLowering):
    _name = "lowering_of_what_others_call"

    def run_pass(self, state: Any) -> bool:
        """As Numba does it, into another library."""
        state.library = _Unfinished(state.targetctx.codegen(), state.func_id.func_qualname)
        return bool(super().run_pass(state))


class Inside(CompilerBase):
    """Numba's own steps, but for the last."""

    def define_pipelines(self) -> list[Any]:
        """One, without Python objects."""
        made = DefaultPassBuilder.define_nopython_pipeline(self.state)
        made.passes = [(_Lowering if step is NativeLowering else step, why) for step, why in made.passes]
        made.finalize()
        return [made]


UNFINISHED: dict[str, Any] = {"pipeline_class": Inside} if numba.__version__.startswith("0.68.") else {}
"""How such functions are compiled: by the insides of the Numba they were tried with, of others as Numba does it."""
