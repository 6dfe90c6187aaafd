"""The result of a run: a model for each node, a tidy history, what was released, and under which circumstances.

Saved as a folder: `result.json` (spec, privacy, public numbers, environment), `history.parquet` (one row an
observation) and `model.npz`. The history is computed from the data outside the mechanism: it is labelled *not
private*, in the file too, and is for simulations only.
"""

import json
import os
import platform
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypedDict, cast

import numpy as np

from sottovoce._types import Array
from sottovoce._version import __version__
from sottovoce.engine import ENGINES
from sottovoce.errors import DataError, PrivacyError
from sottovoce.privacy.statement import PrivacyStatement
from sottovoce.run.build import Public
from sottovoce.run.spec import Spec
from sottovoce.run.verify import verify

FORMAT = 1
NOT_PRIVATE = "not private: computed from the data outside the mechanism, for simulation only"


class Observation(TypedDict):
    """A look at a run, from outside the mechanism; one row of the history."""

    round: int
    epoch: float
    """Records used so far, over records."""
    objective: float
    """F(n⁻¹ Σ x̃_i)."""
    suboptimality: float
    """F(n⁻¹ Σ x̃_i) − F*; not a number where F* is not known."""
    train_accuracy: float
    """Of the mean model; R² for regression."""
    test_accuracy: float
    """Not a number without test data."""
    consensus_error: float
    """n⁻¹ Σ ‖x̃_i − mean‖."""
    messages: int
    """Sent so far, one a directed link."""
    bytes: int


COLUMNS = {name: "int64" if kind is int else "float64" for name, kind in Observation.__annotations__.items()}
"""The history's columns, by their Arrow types; Arrow itself is loaded where tables are made, not with the package."""


class History:
    """A table with the columns of `COLUMNS`, one row for each observed round."""

    def __init__(self, rows: list[Observation] | None = None) -> None:
        self.rows: list[Observation] = list(rows or [])

    def __len__(self) -> int:
        """Number of observations."""
        return len(self.rows)

    def __repr__(self) -> str:
        """How much there is, and what it is."""
        return f"<History of {len(self)} observations, {NOT_PRIVATE}>"

    def __getitem__(self, column: str) -> Array:
        """A column as an array."""
        return np.array([self.cell(row, column) for row in self.rows])

    @staticmethod
    def cell(row: Observation, column: str) -> float:
        """One number of a row; not a number where an older version did not write it."""
        return float(cast("dict[str, float]", row).get(column, np.nan))

    @property
    def last(self) -> Observation:
        """The final observation."""
        return self.rows[-1]

    def to_table(self) -> Any:
        """An Arrow table that says what it is."""
        import pyarrow as pa

        types = [(name, getattr(pa, kind)()) for name, kind in COLUMNS.items()]
        table = pa.Table.from_pylist(self.rows, schema=pa.schema(types))
        return table.replace_schema_metadata({"privacy": NOT_PRIVATE})

    @classmethod
    def from_table(cls, table: Any) -> "History":
        """Read `to_table` back."""
        return cls(table.to_pylist())


@dataclass(frozen=True, eq=False)
class Result:
    """What a run leaves behind.

    Attributes
    ----------
    spec : what was run
    models : (n, m) x̃_i, the output of Algorithm 1 at every node; the last coordinate is the intercept's, if any; of K
        outputs, one such stretch of coordinates after the other
    history : observations, not private
    statement : the privacy statement: what is guaranteed, against whom, and on what it rests
    public : numbers derived from the spec and public sizes alone: ι, β, L, K_i, …
    classes : the two labels behind −1 and +1, or the K labels behind 0 … K − 1; None for regression
    features : names of the columns, where the data had them
    nodes : names of the nodes
    environment : versions, machine, engine, wall time
    statistics : the mean of everybody's statistics with their noise, packed, where those were released: what the model
        is made of, and whatever else can be (`problem.least_squares`)
    """

    spec: Spec
    models: Array
    history: History
    statement: PrivacyStatement
    public: Public
    classes: tuple[Any, ...] | None = None
    features: tuple[str, ...] | None = None
    nodes: tuple[str, ...] | None = None
    environment: dict[str, Any] = field(default_factory=dict)
    statistics: Array | None = None

    @property
    def model(self) -> Array:
        """n⁻¹ Σ x̃_i, the mean model."""
        return self.models.mean(axis=0)

    @property
    def coef(self) -> Array:
        """Weights of the features in the mean model: (features,), or (K, features) of K outputs."""
        x = self._by_output()
        return x[..., :-1] if self.spec.problem.intercept else x

    @property
    def intercept(self) -> float | Array:
        """The mean model's constant term: a number, or one for each of K outputs."""
        x, B = self._by_output(), self.spec.problem.intercept
        if self.spec.problem.outputs > 1:
            return x[:, -1] * B if B else np.zeros(len(x))
        return float(x[-1]) * B if B else 0.0

    def _by_output(self) -> Array:
        K = self.spec.problem.outputs
        return self.model if K == 1 else self.model.reshape(K, -1)

    def decide(self, X: Any) -> Array:
        """⟨c, x⟩ + intercept for new records; (records, K) of K outputs."""
        features = self.coef.shape[-1]
        if X.shape[1] != features:
            raise DataError(f"the model has {features} features, but these records have {X.shape[1]}")
        return np.asarray(X @ self.coef.T) + self.intercept

    def predict(self, X: Any) -> np.ndarray[Any, Any]:
        """Labels for classification (class numbers where they have no names), numbers for regression."""
        decision = self.decide(X)
        if decision.ndim == 1 and self.classes is None:
            return decision
        chosen = np.argmax(decision, axis=1) if decision.ndim == 2 else (decision >= 0).astype(int)
        return chosen if self.classes is None else np.array(self.classes)[chosen]

    def __eq__(self, other: object) -> bool:
        """Equal to the last digit, models, history and all."""
        return isinstance(other, Result) and self._json() == other._json() and _same(self._arrays(), other._arrays())

    __hash__ = None  # type: ignore[assignment]

    def _arrays(self) -> dict[str, Array]:
        return {"models": self.models} | ({} if self.statistics is None else {"statistics": self.statistics})

    def _json(self) -> str:
        parts = {
            "format": FORMAT,
            "spec": self.spec.to_dict(),
            "privacy": self.statement.to_dict(),
            "public": self.public,
            "classes": self.classes,
            "features": self.features,
            "nodes": self.nodes,
            "environment": self.environment,
        }
        return json.dumps(parts | {"history": self.history.rows}, ensure_ascii=False, sort_keys=True)

    def verify(self) -> None:
        """Raise an error unless the statement is what the spec guarantees with the public numbers; see `run.verify`."""
        verify(self.spec, self.public, self.statement, self.environment)
        m = int(self.public["m"])
        if self.models.shape[1:] != (m,) or len(self.models) not in (1, self.public["n"]):
            raise PrivacyError(
                f"there are models of shape {self.models.shape}, but the public numbers are those of "
                f"{self.public['n']} nodes and {m} numbers each"
            )

    def save(self, folder: str | Path) -> Path:
        """Write the result into a folder, which is made if need be."""
        import pyarrow.parquet as pq

        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        head = json.loads(self._json())
        del head["history"]
        write_atomically(folder / "result.json", json.dumps(head, ensure_ascii=False, indent=2).encode())
        pq.write_table(self.history.to_table(), folder / "history.parquet")
        np.savez_compressed(folder / "model.npz", allow_pickle=False, **self._arrays())
        return folder

    @classmethod
    def load(cls, folder: str | Path) -> "Result":
        """Read a saved result back; equal to the one that was saved."""
        from zipfile import BadZipFile

        import pyarrow as pa
        import pyarrow.parquet as pq

        folder = Path(folder)
        try:
            head = json.loads((folder / "result.json").read_text())
            table = pq.read_table(folder / "history.parquet")
            arrays = _arrays(folder / "model.npz", head["public"])
        except (OSError, ValueError, KeyError, TypeError, MemoryError, BadZipFile, pa.ArrowException) as error:
            raise DataError(
                f"'{folder}' holds no readable result ({type(error).__name__}); give a saved folder"
            ) from None
        if head.pop("format", None) != FORMAT:
            raise DataError(f"the result in '{folder}' was saved by another version of sottovoce; make it anew")
        for name in ("classes", "features", "nodes"):
            head[name] = None if head[name] is None else tuple(head[name])
        head["spec"] = Spec.from_dict(head["spec"])
        head["statement"] = PrivacyStatement.from_dict(head.pop("privacy"))
        return cls(history=History.from_table(table), **head | arrays)


def _same(mine: dict[str, Array], theirs: dict[str, Array]) -> bool:
    return mine.keys() == theirs.keys() and all(np.array_equal(mine[name], theirs[name]) for name in mine)


LARGEST = 2**33
"""Bytes of an array of a result, unpacked."""


def _arrays(path: Path, public: Any) -> dict[str, Array]:
    """Models, and statistics if there are any; not even unpacked where they are more than the run's, or than fits."""
    from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile

    n, m = int(public["n"]), int(public["m"])
    numbers = {"models": n * m, "statistics": (m + 1) * (m + 2) // 2}
    with ZipFile(path) as archive:
        sizes = {entry.filename.removesuffix(".npy"): entry.file_size for entry in archive.infolist()}
        kinds = {entry.compress_type for entry in archive.infolist()}
    if not kinds <= {ZIP_STORED, ZIP_DEFLATED}:  # others unpack all at once, whatever size they say
        raise ValueError("it is packed in another way than results are")
    if "models" not in sizes or not sizes.keys() <= numbers.keys():
        raise ValueError("there are other arrays")
    if any(size > min(8 * numbers[name] + 1024, LARGEST) for name, size in sizes.items()):  # and its own head
        raise ValueError("there is more than the numbers of this run")
    with np.load(path) as arrays:
        return {name: arrays[name] for name in sizes}


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file whole or not at all, also when the machine stops in the middle."""
    beside = path.with_name(path.name + ".part")
    with open(beside, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(beside, path)


def environment(engine: str, seconds: float, runs: int = 1) -> dict[str, Any]:
    """Under which circumstances a run was made, with how many others beside it; and on which device, if on one."""
    about = ENGINES[engine].about if engine in ENGINES else None
    others = {} if about is None else {"device": about(), "runs": runs}
    return {
        "sottovoce": __version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "machine": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
        "engine": engine,
        "seconds": round(seconds, 3),
        **others,
    }
