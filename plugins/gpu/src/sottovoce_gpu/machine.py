"""Where kernels run: on a CUDA device through CuPy, or, to test them, on the host in a library of the same source.

A machine has an array module (`xp`), takes arrays and gives them back, and launches kernels on structs of addresses.
Each thread of the host has a stream of its own on the device, so that groups of runs in threads share it.
"""

import atexit
import ctypes
import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from sottovoce.errors import SottovoceError
from sottovoce_gpu.source import source

SHORT = {"PER": 1, "MAX_THREADS": 512, "SHORT": 1}
"""What all kernels but those of long rounds are compiled for, once: they look up as they run what a run needs."""
STREAMS = {"working": -2, "beside": -2, "reading": -2, "clusters": -1, "blocks": 0}
"""What a thread requests, and how late it comes. What is short goes first; and a cluster, which needs several chips
near each other at once, before single blocks that would take them one by one."""
CONNECTIONS = "CUDA_DEVICE_MAX_CONNECTIONS", "32"
"""Streams beyond these wait for each other; a device has 8, unless it is informed before it is first used."""
LARGE = 1 << 26
"""Bytes from which on an array is not copied to pinned memory first."""
ADVICE = "install it with pip install 'cupy-cuda12x>=13', on a machine with an NVIDIA GPU and its driver"


class Machine(Protocol):
    """A place for kernels."""

    xp: Any
    name: str
    threads: int
    """Of a block that has a run to itself."""
    lanes: int
    """Of a warp."""
    least: int
    per: int
    """Counters that one of them has registers for, at the least and at the most."""
    room: int
    """Bytes on the chip that a block may have."""
    blocks: int
    """Blocks that have a chip to themselves at the same time."""
    cluster: int
    """Blocks, at the most, that see each other's chips; 0 where none do."""

    def put(self, values: Any, dtype: Any = None) -> Any:
        """An array of its own, with these values."""

    def get(self, values: Any) -> NDArray[Any]:
        """The values, in memory of the host."""

    def address(self, values: Any) -> int:
        """Where an array of the machine lies."""

    def launch(
        self,
        kernel: str,
        blocks: int,
        threads: int,
        room: int,
        given: Any,
        options: Mapping[str, int],
        long: bool = False,
    ) -> None:
        """Run a kernel on structs, which `put` has brought there; a long one gives way to those of other threads."""

    def wait(self) -> None:
        """Until this thread's kernels have run, so that others may use what they made."""

    def mark(self) -> Any:
        """Where this thread's work stands."""

    def after(self, mark: Any) -> None:
        """Let this thread's work go on only after that of another, or its own, up to a mark."""

    def until(self, mark: Any) -> None:
        """Wait here for all work up to a mark, while other threads ask for more."""

    def working(self) -> Any:
        """A context for the work of a thread."""

    def beside(self) -> Any:
        """A context for work of the thread that its other work is not to wait for."""

    def reading(self) -> Any:
        """A context for reading what was made before, without waiting for what the thread has requested since."""

    def room_left(self) -> int:
        """Bytes that arrays may take."""


class Cuda:
    """A CUDA device; kernels are compiled for what a run needs of them, unless one for all is requested."""

    threads = 512
    lanes = 32
    least, per = 1, 4

    def __init__(self, special: bool = True) -> None:
        os.environ.setdefault(*CONNECTIONS)
        import cupy

        self._special = special

        self.xp = cupy
        device = cupy.cuda.Device()
        properties = cupy.cuda.runtime.getDeviceProperties(device.id)
        self.name = properties["name"].decode()
        self.room = int(device.attributes["MaxSharedMemoryPerBlockOptin"])
        self.blocks = int(properties["multiProcessorCount"])
        self.cluster = 8 if int(properties["major"]) >= 9 else 0
        self._mine = threading.local()
        self._lock = threading.Lock()
        self._modules: dict[tuple[tuple[str, int], ...], tuple[threading.Lock, list[Any]]] = {}

    def put(self, values: Any, dtype: Any = None) -> Any:
        """Copied over; what is large from where it lies."""
        values = np.ascontiguousarray(values, dtype=dtype)
        if values.nbytes < LARGE:
            return self.xp.asarray(values)
        there = self.xp.empty(values.shape, values.dtype)
        there.set(values)
        return there

    def get(self, values: Any) -> NDArray[Any]:
        """Copied back."""
        return self.xp.asnumpy(values)

    def address(self, values: Any) -> int:
        """On the device."""
        return int(values.data.ptr)

    def launch(
        self,
        kernel: str,
        blocks: int,
        threads: int,
        room: int,
        given: Any,
        options: Mapping[str, int],
        long: bool = False,
    ) -> None:
        """Compiled for these options when first requested."""
        function = self._module(options).get_function(kernel)
        if room > function.max_dynamic_shared_size_bytes:
            function.max_dynamic_shared_size_bytes = room
        if not long:
            return function((blocks,), (threads,), (given,), shared_mem=room)
        mine = self.xp.cuda.get_current_stream()
        other = self._stream("clusters" if kernel == "clusters" else "blocks")
        other.wait_event(mine.record())
        with other:
            function((blocks,), (threads,), (given,), shared_mem=room)
        mine.wait_event(other.record())

    def _module(self, options: Mapping[str, int]) -> Any:
        always = ("PER", "MAX_THREADS", "SHORT", "SEATS", "SPANS", "CLUSTER")
        general = {name: options[name] for name in always if name in options}
        wanted = tuple(sorted((options if self._special else general).items()))
        with self._lock:
            lock, made = self._modules.setdefault(wanted, (threading.Lock(), []))
        with lock:  # others may compile for other options meanwhile
            if not made:
                flags = ("-std=c++14", *(f"-D{name}={value}" for name, value in wanted))
                module = self.xp.RawModule(code=source(), options=flags)
                module.compile()
                made.append(module)
        return made[0]

    def wait(self) -> None:
        """For the thread's stream."""
        self.xp.cuda.get_current_stream().synchronize()

    def mark(self) -> Any:
        """An event in the thread's stream."""
        event = self.xp.cuda.Event(block=True, disable_timing=True)
        event.record(self.xp.cuda.get_current_stream())
        return event

    def after(self, mark: Any) -> None:
        """The thread's stream waits for the event."""
        self.xp.cuda.get_current_stream().wait_event(mark)

    def until(self, mark: Any) -> None:
        """Asleep: a copy that has to wait for a kernel would keep all other threads from the driver meanwhile."""
        mark.synchronize()

    def _stream(self, name: str) -> Any:
        """The thread's own, made when it is first used."""
        mine = self._mine.__dict__
        if name not in mine:
            mine[name] = self.xp.cuda.Stream(non_blocking=True, priority=STREAMS[name])
        return mine[name]

    @contextmanager
    def working(self) -> Iterator[None]:
        """In a stream of the thread's own."""
        with self._stream("working"):
            yield

    @contextmanager
    def beside(self) -> Iterator[None]:
        """In another one."""
        with self._stream("beside"):
            yield

    @contextmanager
    def reading(self) -> Iterator[None]:
        """In a third."""
        with self._stream("reading"):
            yield

    def room_left(self) -> int:
        """What is free on the device, with what the pool holds."""
        free, _ = self.xp.cuda.runtime.memGetInfo()
        return int(free) + self.xp.get_default_memory_pool().free_bytes()


class Host:
    """The kernels in a library of the host; for tests, in blocks of a few threads."""

    xp: Any = np
    name = "this machine, for tests"
    room = 1 << 16
    lanes = 1
    least = per = 2
    blocks, cluster = 6, 3

    def __init__(self, threads: int = 1) -> None:
        self.threads = threads
        self._library = ctypes.CDLL(str(_built()))
        self._library.launch.argtypes = [
            *(ctypes.c_void_p, ctypes.c_int64, ctypes.c_int, ctypes.c_int64, ctypes.c_void_p, ctypes.c_int)
        ]

    def put(self, values: Any, dtype: Any = None) -> Any:
        """A copy."""
        return np.array(values, dtype=dtype, order="C")

    def get(self, values: Any) -> NDArray[Any]:
        """As it is."""
        return values

    def address(self, values: Any) -> int:
        """In memory."""
        return int(values.ctypes.data)

    def launch(
        self,
        kernel: str,
        blocks: int,
        threads: int,
        room: int,
        given: Any,
        options: Mapping[str, int],
        long: bool = False,
    ) -> None:
        """With options fetched as it runs."""
        entry = ctypes.cast(getattr(self._library, kernel), ctypes.c_void_p)
        cluster = options.get("CLUSTER", 0)
        threads = threads if cluster else min(threads, self.threads)
        if self._library.launch(entry, blocks, threads, room, self.address(given), max(1, cluster)):
            raise SottovoceError(f"a block of the host has 1 to 64 threads, not {threads}")

    def wait(self) -> None:
        """They have run."""

    def mark(self) -> Any:
        """All is done when it is requested."""

    def after(self, mark: Any) -> None:
        """Nothing to wait for."""

    until = after

    @contextmanager
    def working(self) -> Iterator[None]:
        """Nothing to prepare."""
        yield

    beside = reading = working

    def room_left(self) -> int:
        """Enough for a test."""
        return 1 << 30


COMPILER = ("g++", "-O2", "-w", "-x", "c++", "-shared", "-fPIC", "-pthread")


@cache
def _built() -> Path:
    """The library, in a folder that goes away with the process."""
    folder = tempfile.mkdtemp(prefix="sottovoce-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    made = Path(folder) / "rounds.so"
    subprocess.run([*COMPILER, "-", "-o", str(made)], input=source().encode(), check=True)
    return made


@cache
def device() -> Cuda | str:
    """The device, or why there is none."""
    try:
        return Cuda()
    except ImportError:
        return f"CuPy is not installed; {ADVICE}"
    except Exception as error:  # CUDA has errors of many kinds, CuPy's own and the driver's
        return f"no CUDA device can be used ({type(error).__name__}: {str(error).splitlines()[0]}); {ADVICE}"
