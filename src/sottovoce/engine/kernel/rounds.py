"""The rounds start … stop over flat arrays, for R runs that share schedule, records and unit noise: the way in.

The order of operations of `DualAveraging.step` and of `Descent.step` is repeated in the kernel, and nowhere else; a
contract test holds them together. Descent is dual averaging with x = z, −η_t for a_t, and a proximal step after mixing.
State is z and total, (R, n, m), and since, (n,). A round has four parts: looking and waking (`wake`), speaking and
settling (`speak`). One of disjoint links is gone through link by link.

Rounds of few records are looked at ahead of time (`look_ahead`), and then memory is asked for the rows of the next
round while this one makes its noise. Over CSR rows, where the state is too large for a cache, such a block of rounds is
gone through in passes: first the coordinates that its records touch, round by round; then everything, a part of the
coordinates at a time through all the rounds, and where these are edges, one run after the other (`near`).
"""

import inspect
import sys
import zlib
from pathlib import Path
from types import CodeType

from numba.core import event

from sottovoce import rows, streams
from sottovoce.engine.kernel import MATRIX
from sottovoce.engine.kernel.arguments import BLOCK, NONE, OUTSIDE, Part, njit
from sottovoce.engine.kernel.crew import claim, meet
from sottovoce.engine.kernel.data import RUNGS
from sottovoce.engine.kernel.near import go_through
from sottovoce.engine.kernel.speak import bound, settle, settle_part, shrink_part, speak_part
from sottovoce.engine.kernel.wake import look, look_ahead, take, wake
from sottovoce.secure import compiled, functions


def meaning(thing) -> str:
    """What a function computes, as text: its code, and whatever that refers to; of anything else, what it is."""
    if isinstance(thing, CodeType):
        return f"{thing.co_code.hex()} {thing.co_names} {[meaning(part) for part in thing.co_consts]}"
    if not inspect.isfunction(thing):
        return thing.__name__ if inspect.ismodule(thing) else repr(thing)
    used = inspect.getclosurevars(thing)
    refers = [f"{name}: {meaning(value)}" for name, value in sorted({**used.globals, **used.nonlocals}.items())]
    return f"{meaning(thing.__code__)} {thing.__defaults__} {refers}"


def _fingerprint() -> int:
    """Of what is compiled into the kernel: its sources, those that it has constants from, and the slopes."""
    files = [
        *sorted(Path(__file__).parent.glob("*.py")),
        *(Path(str(each.__file__)) for each in (rows, streams, compiled, functions)),
    ]
    slopes = [f"{name}: {meaning(loss.slope_formula)}" for name, loss in RUNGS.items()]
    return zlib.crc32(b"".join(path.read_bytes() for path in files) + "\n".join(slopes).encode())


def _entry(sources: int):
    """The kernel; Numba's disk cache keys on what it closes over, so an edit of what is in it is noticed."""

    @njit(**OUTSIDE)
    def run_rounds(
        data,
        plan,
        model,
        steps,
        noise,
        few,
        tiles,
        robust,
        pairs,
        joint,
        bent,
        crew,
        scratch,
        z,
        total,
        since,
        start,
        stop,
    ):
        """Run rounds start … stop; z, total and since are updated in place, by all threads of the crew together.

        Injected places count from the first one of round `start`. Of `few` … `bent`, which is which kind of a run it
        is (`Kind`), those that are None are not compiled.
        """
        if sources < 0:
            return
        R, n, m = z.shape
        half, begun = (m + 1) // 2, start
        where, counters = scratch.where, scratch.counters
        while begun <= stop:
            last, touched = begun - 1, 0
            if few is not None:
                if scratch.ahead:
                    last, touched = look_ahead(data, plan, model, noise, few, tiles, begun, stop, m, since, scratch)
            looked, last = last >= begun, max(last, begun)
            known = plan.starts[last] - plan.starts[begun - 1] if looked else 0
            passes, stretch, Z, its_where, its_counters = 1, half, z, where, counters
            part = Part(0, half, half, False, False, known)
            if tiles is not None:
                if touched > 0:
                    Z = tiles.z[: R * n * touched].reshape(R, n, touched)
                    take(z, tiles, touched, Z)
                    stretch = tiles.stretch
                    passes += 0 if tiles.edges else (half + stretch - 1) // stretch
                    its_where, its_counters = tiles.where, tiles.counters
                    part = Part(0, touched, touched, True, False, known)
            for v in range(passes):
                if v > 0:
                    low = (v - 1) * stretch
                    part = Part(low, min(stretch, half - low), half, False, True, known)
                    Z, its_where, its_counters = z, where, counters
                spot, low, high = NONE, part.first, part.first + part.size
                for t in range(begun, last + 1):
                    begin, k, pattern = plan.starts[t - 1], plan.starts[t] - plan.starts[t - 1], plan.pattern[t - 1]
                    size, flat = k // plan.groups[pattern], plan.flat[pattern]
                    for g in range(plan.groups[pattern]):
                        nodes = plan.active[begin + g * size : begin + (g + 1) * size]
                        corner = plan.corners[pattern] + g * size * size
                        W = plan.weights[corner : corner + size * size].reshape(size, size)
                        speakers = min(size, max(0, plan.speakers - g * size))
                        place = begin + g * size - plan.starts[start - 1]
                        p = NONE - 1
                        while not part.later:
                            p = p + 1 if crew.parts > 1 else claim(crew, p)
                            if p >= size:
                                break
                            i, at, speaks, count = nodes[p], spot + p, p < speakers, 0
                            if few is not None:
                                count = scratch.count[at]
                            if not looked:
                                count = look(
                                    data, model, noise, few, pairs, t, i, k, speaks, place + p, m, at, since, scratch
                                )
                            wake(
                                data,
                                model,
                                steps,
                                noise,
                                few,
                                joint,
                                bent,
                                crew,
                                t,
                                i,
                                speaks,
                                count,
                                its_where,
                                at,
                                Z,
                                total,
                                scratch,
                            )
                        if tiles is not None:
                            if part.copies:
                                high = tiles.needed[t - begun]
                        shared, quick, mixes = False, False, True
                        if robust is not None:
                            mixes = plan.averaging == MATRIX
                        if pairs is not None:
                            gone = flat and noise.level and speakers == size and not model.after and mixes
                            shared = noise.pairs and not gone
                        if few is not None:
                            quick = size == 2 and mixes and not shared
                        how = (quick, shared, mixes, flat)
                        if not meet(crew):
                            return
                        if robust is not None:
                            if model.after and not mixes:
                                if crew.me == 0:
                                    bound(plan, steps, t, nodes, W, Z, scratch)
                                if not meet(crew):
                                    return
                        here = Part(low, high - low, part.half, part.copies, part.later, part.known)
                        taken = NONE - 1
                        while True:
                            taken = claim(crew, taken)
                            first = low + taken * BLOCK
                            if first >= high:
                                break
                            here = Part(first, min(BLOCK, high - first), part.half, part.copies, part.later, part.known)
                            speak_part(
                                data,
                                model,
                                steps,
                                noise,
                                few,
                                tiles,
                                pairs,
                                bent,
                                t,
                                nodes,
                                speakers,
                                W,
                                how,
                                place,
                                spot,
                                here,
                                its_counters,
                                Z,
                                total,
                                scratch,
                            )
                        if not meet(crew):
                            return
                        if robust is not None:
                            if not model.after and not mixes:
                                if crew.me == 0:
                                    bound(plan, steps, t, nodes, W, Z, scratch)
                                if not meet(crew):
                                    return
                        if few is not None:
                            if tiles is not None:
                                if part.later:
                                    settle_part(data, model, tiles, nodes, W, spot, here, Z, scratch)
                            if not part.later:
                                settle(data, model, nodes, W, its_where, spot, Z, scratch)
                        if model.descent:
                            if crew.me == 0:
                                shrink_part(model, steps, bent, t, nodes, speakers, here, Z)
                            if not meet(crew):
                                return
                        spot += size
                    if not looked:
                        spot = NONE
            if tiles is not None:
                if touched > 0 and tiles.edges:
                    go_through(data, plan, tiles, tiles.near, begun, last, z, total, scratch)
            begun = last + 1

    return run_rounds


run_rounds = _entry(_fingerprint())


class Announcement(event.Listener):
    """Says where somebody looks that the kernel is being compiled: seconds in which nothing else would be seen."""

    def on_start(self, event):
        """When Numba begins with a function that it has not in its cache."""
        if event.data["dispatcher"].__name__ in ENTRIES and sys.stderr.isatty():
            print(COMPILING, file=sys.stderr, flush=True)

    def on_end(self, event):
        """Then the rounds begin, and show themselves."""


ENTRIES = {"run_rounds", "run_alike", "run_apart"}
COMPILING = "compiling what this kind of run needs, once on this machine: about ten seconds"
event.register("numba:compile", Announcement())
