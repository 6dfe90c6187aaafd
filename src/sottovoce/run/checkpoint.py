"""Checkpoints: the state, the history so far, and which run and data they belong to."""

import hashlib
import io
import json
from pathlib import Path

import numpy as np

from sottovoce.algorithm.method import State
from sottovoce.errors import DataError, SpecError
from sottovoce.matrices import is_sparse
from sottovoce.problem.shards import Shards
from sottovoce.run.result import History, write_atomically
from sottovoce.run.spec import Spec


def run_digest(spec: Spec, shards: Shards, key: bytes = b"") -> str:
    """By what a run of a spec on some data is known again; of no use to others where there is a key."""
    digest = hashlib.blake2b(spec.to_json().encode(), key=key, digest_size=32)  # reads gigabytes in seconds
    X = shards.X
    data = (X.data, X.indices, X.indptr) if is_sparse(X) else (X,)
    weighed = () if shards.weights is None else (shards.weights,)
    for part in (shards.y, shards.offsets, shards.order, shards.starts, np.array(X.shape), *weighed, *data):
        digest.update(b"none" if part is None else np.ascontiguousarray(part).view(np.uint8).data)
    return digest.hexdigest()


class Checkpoint:
    """One run's place in a folder: written after every evaluation, read when the run is started again.

    It is known by what the spec means and by the data, so that another spelling of the same run goes on from it.
    """

    def __init__(self, folder: str | Path, spec: Spec, shards: Shards) -> None:
        if spec.seed is None:
            raise SpecError("a run without a seed keeps its noise key nowhere and cannot be resumed; give a seed")
        self.path = Path(folder) / "checkpoint.npz"
        self.digest = run_digest(spec, shards)

    def read(self) -> tuple[int, State | None, History]:
        """Where the run stands: its beginning, if there is no checkpoint."""
        if not self.path.exists():
            return 0, None, History()
        try:
            with np.load(self.path) as saved:
                head = json.loads(str(saved["head"]))
                state = State(*(saved[name] for name in State._fields))
        except (OSError, ValueError, KeyError) as error:
            raise DataError(f"'{self.path}' is no readable checkpoint ({type(error).__name__}); delete it") from None
        if head["digest"] != self.digest:
            raise SpecError(f"'{self.path}' belongs to another run or other data; give another folder, or delete it")
        return head["t"], state, History(head["history"])

    def write(self, t: int, state: State, history: History) -> None:
        """Replace the checkpoint, whole."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        buffer = io.BytesIO()
        head = json.dumps({"digest": self.digest, "t": t, "history": history.rows})
        np.savez(buffer, head=np.array(head), **state._asdict())
        write_atomically(self.path, buffer.getvalue())
