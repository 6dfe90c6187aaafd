"""The rounds start … stop over flat arrays, for R runs that share schedule, records and unit noise: the way in.

The order of operations of `DualAveraging.step` and of `Descent.step` is repeated in the kernel, and nowhere else; a
contract test holds them together. Descent is dual averaging with x = z, −η_t for a_t, and a proximal step after mixing.
State is z and total, (R, n, m), and since, (n,). A round has four parts: looking and waking (`wake`), speaking and
settling (`speak`). One of disjoint links is gone through link by link.

Rounds of few records are looked at ahead of time (`look_ahead`), and then memory is asked for the rows of the next
round while this one makes its noise. Over CSR rows, where the state is too large for a cache, such a block of rounds is
gone through in passes: first the coordinates that its records touch, round by round; then everything, a part of the
coordinates at a time through all the rounds.
"""

import inspect
import zlib
from pathlib import Path
from types import CodeType

from sottovoce import rows, streams
from sottovoce.engine.kernel import MATRIX
from sottovoce.engine.kernel.arguments import BLOCK, INSIDE, Part, njit
from sottovoce.engine.kernel.data import RUNGS
from sottovoce.engine.kernel.speak import bound, settle, settle_part, shrink_part, speak_part
from sottovoce.engine.kernel.wake import look, look_ahead, take, wake


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
    files = [*sorted(Path(__file__).parent.glob("*.py")), Path(rows.__file__), Path(streams.__file__)]
    slopes = [f"{name}: {meaning(loss.slope_formula)}" for name, loss in RUNGS.items()]
    return zlib.crc32(b"".join(path.read_bytes() for path in files) + "\n".join(slopes).encode())


def _entry(sources: int):
    """The kernel; Numba's disk cache keys on what it closes over, so an edit of what is in it is noticed."""

    @njit(**INSIDE, cache=True)
    def run_rounds(data, plan, model, steps, noise, scratch, z, total, since, start, stop):
        """Run rounds start … stop; z, total and since are updated in place.

        Injected places count from the first one of round `start`.
        """
        if sources < 0:
            return
        R, n, m = z.shape
        whole, tiles = (m + 1) // 2, scratch.tiles
        t = start
        while t <= stop:
            last, touched = t - 1, 0
            if scratch.ahead:
                last, touched = look_ahead(data, plan, model, noise, t, stop, m, since, scratch)
            looked, last = last >= t, max(last, t)
            known = plan.starts[last] - plan.starts[t - 1] if looked else 0
            copies = tiles.z[: R * n * touched].reshape(R, n, touched)
            if touched > 0:
                take(z, tiles, touched, copies)
            passes = 1 if touched == 0 else 1 + (whole + tiles.stretch - 1) // tiles.stretch
            for v in range(passes):
                first_look, after = touched > 0 and v == 0, v > 0
                Z, where, counters, half = z, scratch.where, scratch.counters, whole
                if first_look:
                    Z, where, counters, half = copies, tiles.where, tiles.counters, touched
                low = (v - 1) * tiles.stretch if after else 0
                high = min(low + tiles.stretch, whole) if after else half
                spot = 0
                for s in range(t, last + 1):
                    begin, k, pattern = plan.starts[s - 1], plan.starts[s] - plan.starts[s - 1], plan.pattern[s - 1]
                    size = k // plan.groups[pattern]
                    for g in range(plan.groups[pattern]):
                        nodes = plan.active[begin + g * size : begin + (g + 1) * size]
                        corner = plan.corners[pattern] + g * size * size
                        W = plan.weights[corner : corner + size * size].reshape(size, size)
                        speakers = min(size, max(0, plan.speakers - g * size))
                        place = begin + g * size - plan.starts[start - 1]
                        for p in range(0 if after else size):
                            i, at, speaks = nodes[p], spot + p, p < speakers
                            count = scratch.count[at]
                            if not looked:
                                count = look(data, model, noise, s, i, k, speaks, place + p, m, at, since, scratch)
                            wake(data, model, steps, noise, s, i, speaks, count, where, at, Z, total, scratch)
                        if first_look:
                            high = tiles.needed[s - t]
                        robust, flat = plan.averaging != MATRIX, plan.flat[pattern]
                        gone = flat and noise.level and speakers == size and not model.after and not robust
                        joint = noise.pairs and not gone
                        how = (size == 2 and not (joint or robust), joint, not robust, flat)
                        if robust and model.after:
                            bound(plan, steps, s, nodes, W, Z, scratch)
                        part = Part(low, high - low, half, first_look, known)
                        for first in range(low, high, BLOCK):
                            part = Part(first, min(BLOCK, high - first), half, first_look, known)
                            speak_part(
                                data,
                                model,
                                steps,
                                noise,
                                s,
                                nodes,
                                speakers,
                                W,
                                how,
                                place,
                                spot,
                                part,
                                counters,
                                Z,
                                total,
                                scratch,
                            )
                        if robust and not model.after:
                            bound(plan, steps, s, nodes, W, Z, scratch)
                        if after:
                            settle_part(data, model, nodes, W, spot, part, Z, scratch)
                        else:
                            settle(data, model, nodes, W, where, spot, Z, scratch)
                        shrink_part(model, steps, s, nodes, speakers, part, not after, Z)
                        spot += size
                    if not looked:
                        spot = 0
            t = last + 1

    return run_rounds


run_rounds = _entry(_fingerprint())
