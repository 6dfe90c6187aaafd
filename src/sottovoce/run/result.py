"""The result of a run: a model for each node, a tidy history, what was released, and under which circumstances.

Saved as a folder:

    result.json     spec, privacy, public numbers, environment, and what the other files must hash to; written last
    model.npz       every node's model, and statistics where those were released
    schema.toml, estimator.json, …     what the model needs besides, if anything (`beside`)
    history.parquet     of a simulation: one row an observation

The history is computed from the data outside the mechanism. A run with a guarantee keeps none in its folder, unless it
is asked to, and then in `NOT-PRIVATE-history.parquet`: whoever publishes a folder publishes what is private in it.

A folder keeps one release. Another one takes its place only where nothing is lost, or by force.
"""

import hashlib
import io
import json
import os
import platform
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypedDict, cast

import numpy as np

from sottovoce import plugins
from sottovoce._types import Array
from sottovoce._version import __version__
from sottovoce.engine import ENGINES
from sottovoce.errors import DataError, PrivacyError, SottovoceError, SpecError
from sottovoce.privacy.statement import PrivacyStatement
from sottovoce.run.build import Public
from sottovoce.run.scale import AS_IT_IS, Scale
from sottovoce.run.spec import Spec
from sottovoce.run.verify import verify

FORMAT, FORMATS = 2, (1, 2)
"""The newest, and all that are read; version 0.1 wrote the first, which says nothing of other files."""
HEAD, MODEL, HISTORY = "result.json", "model.npz", "history.parquet"
EVALUATION = "evaluation.json"
"""What a private evaluation found, where the statement covers one."""
ESTIMATOR = "estimator.json"
"""Parameters of an estimator that was saved as one."""
OPEN_HISTORY = "NOT-PRIVATE-history.parquet"
"""Of a run with a guarantee, where it was asked for."""
OF_ONE_RUN = (HEAD, MODEL, HISTORY, OPEN_HISTORY, EVALUATION, ESTIMATOR, "audit.json", "report.html")
"""What a folder loses when another run takes its place."""
NOT_NEEDED = (HISTORY, OPEN_HISTORY, EVALUATION)
"""Without which a result is still whole."""
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
    scale : how new records meet the model
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
    scale: Scale = AS_IT_IS

    @property
    def model(self) -> Array:
        """n⁻¹ Σ x̃_i, the mean model."""
        return self.models.mean(axis=0)

    @property
    def coef(self) -> Array:
        """Weights of the features in the mean model, in the units of records: (features,), or (K, features)."""
        x = self._by_output()
        return (x[..., :-1] if self.spec.problem.intercept else x) * (self.scale.half / self.scale.unit)

    @property
    def intercept(self) -> float | Array:
        """The mean model's constant term, in the units of targets: a number, or one for each of K outputs."""
        x, B = self._by_output(), self.spec.problem.intercept
        constant = x[..., -1] * B if B else np.zeros(x.shape[:-1])
        found = constant * self.scale.half + self.scale.middle
        return found if self.spec.problem.outputs > 1 else float(found)

    @property
    def target_range(self) -> tuple[float, float] | None:
        """The range that targets were clipped to, in their units: the public one, or what noisy counts told of it."""
        if "targets" not in self.public:
            return self.scale.targets
        low, high = (self.scale.middle + self.scale.half * end for end in self.public["targets"])
        return low, high

    def _by_output(self) -> Array:
        K = self.spec.problem.outputs
        return self.model if K == 1 else self.model.reshape(K, -1)

    def decide(self, X: Any) -> Array:
        """⟨c, x⟩ + intercept for new records; (records, K) of K outputs."""
        features = self.coef.shape[-1]
        if X.shape[1] != features:
            raise DataError(f"the model has {features} features, but these records have {X.shape[1]}")
        if not np.all(np.isfinite(self.model)):
            raise DataError("the model holds numbers that are not finite: its run diverged; train it anew")
        return np.asarray(self.scale.rows(X) @ self.coef.T) + self.intercept

    def predict(self, X: Any) -> np.ndarray[Any, Any]:
        """Labels for classification (class numbers where they have no names), numbers for regression."""
        decision = self.decide(X)
        if decision.ndim == 1 and self.classes is None:
            return decision
        several = decision.ndim == 2
        chosen = np.argmax(decision, axis=1) if several else (decision >= self.scale.threshold).astype(int)
        return chosen if self.classes is None else np.array(self.classes)[chosen]

    def __eq__(self, other: object) -> bool:
        """Equal to the last digit, models, history and all."""
        return isinstance(other, Result) and self._json() == other._json() and _same(self._arrays(), other._arrays())

    __hash__ = None  # type: ignore[assignment]

    def _arrays(self) -> dict[str, Array]:
        return {"models": self.models} | ({} if self.statistics is None else {"statistics": self.statistics})

    @property
    def kept_environment(self) -> dict[str, Any]:
        """How long a run with a guarantee took is not kept: that may depend on a record, as on its many entries."""
        return {k: v for k, v in self.environment.items() if k != "seconds" or self.statement.simulation}

    def _json(self) -> str:
        parts = {
            "format": FORMAT,
            "spec": self.spec.to_dict(),
            "privacy": self.statement.to_dict(),
            "public": self.public,
            "classes": self.classes,
            "features": self.features,
            "nodes": self.nodes,
            "environment": self.kept_environment,
            "scale": self.scale.to_dict(),
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

    def save(
        self,
        folder: str | Path,
        *,
        beside: Mapping[str, bytes] | None = None,
        not_private_history: bool = False,
        force: bool = False,
    ) -> Path:
        """Write the result into a folder, which is made if need be: whole, or so that it is not taken for a whole one.

        Parameters
        ----------
        folder : where to
        beside : further files that belong to the model, such as its schema
        not_private_history : whether to keep the history of a run with a guarantee too, in a file that says what it is
        force : whether to take the place of another release that lies there
        """
        import pyarrow.parquet as pq

        folder = Path(folder)
        refuse_to_lose(folder, self, force)
        files = {MODEL: _packed(self._arrays())} | dict(beside or {})
        if len(self.history) and (self.statement.simulation or not_private_history):
            pq.write_table(self.history.to_table(), table := io.BytesIO())
            files[HISTORY if self.statement.simulation else OPEN_HISTORY] = table.getvalue()
        head = json.loads(self._json()) | {"files": {name: _digest(content) for name, content in files.items()}}
        del head["history"]
        try:
            folder.mkdir(parents=True, exist_ok=True)
            _replace_all(folder, files | {HEAD: _text(head)})
        except OSError as error:
            raise DataError(
                f"the result cannot be written to '{folder}' ({error.strerror or error}); give a folder that may be "
                "written to and that has room"
            ) from None
        return folder

    def _fitting(self, folder: Path) -> "Result":
        """Itself, if names and models are of one run."""
        K, width = self.spec.problem.outputs, self.models.shape[1] if self.models.ndim == 2 else 0
        labels = 0 if self.classes is None else len(self.classes)
        features = width // K - (self.spec.problem.intercept > 0)
        wrong = width % K or features < 1 or (self.features is not None and len(self.features) != features)
        if wrong or labels not in ((0, 2) if K == 1 else (0, K)):
            raise DataError(f"'{folder}' holds no whole result: its names are not those of its model; make it anew")
        return self

    def restate(self, folder: str | Path, beside: Mapping[str, bytes] | None = None) -> Path:
        """Say in the folder of this very result what its statement is now, and what came beside it; all else stays."""
        folder, more = Path(folder), dict(beside or {})
        head = _head(folder) | {"privacy": self.statement.to_dict()}
        if head["format"] > 1:
            head["files"] |= {name: _digest(content) for name, content in more.items()}
        for name, content in more.items():
            write_atomically(folder / name, content)
        write_atomically(folder / HEAD, _text(head))
        return folder

    @classmethod
    def load(cls, folder: str | Path) -> "Result":
        """Read a saved result back; one of which a file was changed, or not written whole, is refused."""
        from zipfile import BadZipFile

        import pyarrow as pa
        import pyarrow.parquet as pq

        folder = Path(folder)
        head = _head(folder)
        try:
            arrays = _arrays(folder / MODEL, head["public"])
            refuse_changed(folder, head.pop("files", {}))
            kept = next((name for name in (HISTORY, OPEN_HISTORY) if (folder / name).exists()), None)
            history = History() if kept is None else History.from_table(pq.read_table(folder / kept))
            for name in ("classes", "features", "nodes"):
                head[name] = None if head[name] is None else tuple(head[name])
            if head.pop("format") > 1 or "scale" in head:
                head["scale"] = Scale.from_dict(head["scale"])
            lacking = plugins.missing(head["environment"].get("plugins"))
            if lacking is not None:
                raise DataError(f"the result in '{folder}' cannot be read: {lacking}")
            head["spec"] = Spec.from_dict(head["spec"])
            head["statement"] = PrivacyStatement.from_dict(head.pop("privacy"))
            return cls(history=history, **head | arrays)._fitting(folder)
        except SottovoceError:
            raise
        except (
            OSError, ValueError, KeyError, TypeError, AttributeError, MemoryError, OverflowError, BadZipFile,
            pa.ArrowException,
        ) as error:  # fmt: skip
            raise _unreadable(folder, error) from None


NAMES: dict[str, Any] = {"classes": (str, int, float), "features": str, "nodes": str}
"""Of what the lists of a head are made."""
NUMBERS = ("n", "m", "iota", "beta", "beta_error", "lipschitz", "noise", "depth", "skips")
"""Of the public numbers, those that are one."""
COUNTS = ("records", "participations")
"""And those that are lists of them."""


def _head(folder: Path) -> dict[str, Any]:
    """What `result.json` says, as far as it is one of ours."""
    try:
        head = json.loads((folder / HEAD).read_text(encoding="utf-8"))
        if not isinstance(head, dict):
            raise TypeError
        for name, kinds in NAMES.items():
            if not all(isinstance(value, kinds) for value in head.get(name) or ()):
                raise TypeError
        public = head.get("public")
        if not isinstance(public, dict) or not isinstance(head.get("environment"), dict):
            raise TypeError
        if not all(isinstance(public[name], int | float) for name in NUMBERS if name in public):
            raise TypeError
        if not all(isinstance(value, int | float) for name in COUNTS for value in public.get(name, ())):
            raise TypeError
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise _unreadable(folder, error) from None
    if head.get("format") not in FORMATS:
        raise DataError(f"the result in '{folder}' was saved by another version of sottovoce; make it anew")
    if head["format"] > 1 and MODEL not in (head["files"] if isinstance(head.get("files"), dict) else {}):
        raise DataError(f"the result in '{folder}' does not say which model it is of; make it anew")
    return head


def _unreadable(folder: Path, error: Exception) -> DataError:
    return DataError(f"'{folder}' holds no readable result ({type(error).__name__}); give a saved folder")


def refuse_changed(folder: Path, files: Mapping[str, str]) -> None:
    """Every file that a result was saved with is there, as it was written."""
    for name, wanted in files.items():
        path = folder / Path(name).name
        if path.name in NOT_NEEDED and not path.exists():
            continue
        if not path.exists():
            raise DataError(f"'{folder}' holds no whole result: {name} is gone; save it anew")
        if _digest(path.read_bytes()) != wanted:
            raise DataError(
                f"'{path}' is not the file that the result was saved with: it was changed since, or comes from "
                "another run; restore it, or make the result anew"
            )


def belonging(folder: Path, name: str) -> bytes | None:
    """A file that belongs to the result in a folder, as it was saved; None where it has none of that name.

    Version 0.1 did not say which files belong to a result: there, what lies beside it does.
    """
    head, path = _head(folder), folder / name
    if head["format"] > 1 and name not in head["files"]:
        return None
    if not path.exists():
        return None
    refuse_changed(folder, {name: head["files"][name]} if head["format"] > 1 else {})
    return path.read_bytes()


def refuse_to_lose(folder: str | Path, new: "Result | Spec", force: bool = False) -> None:
    """Refuse a folder with another release in it; the same simulation made again, or the same models, lose nothing.

    A run that is only planned is told by its spec, so that nothing need be run in vain.
    """
    folder = Path(folder)
    if force or not (folder / HEAD).exists():
        return
    spec = new.spec if isinstance(new, Result) else new
    try:
        there = Spec.from_dict(_head(folder)["spec"])
        same = there == spec and (spec.seed is not None or (isinstance(new, Result) and _holds(folder, new)))
    except (ValueError, KeyError, TypeError, AttributeError):  # it cannot be told what is there
        same = False
    if not same:
        raise SpecError(
            f"there is a result in '{folder}' already, and another one would take its place, though what was released "
            "stays released; give another folder, or --force (force=True) to lose it"
        )


def _holds(folder: Path, new: "Result") -> bool:
    old = Result.load(folder)
    return old.public == new.public and _same(old._arrays(), new._arrays())


def _packed(arrays: dict[str, Array]) -> bytes:
    buffer = io.BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, **arrays)
    return buffer.getvalue()


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _text(head: dict[str, Any]) -> bytes:
    return json.dumps(head, ensure_ascii=False, indent=2).encode()


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
    try:
        with np.load(path) as arrays:
            found = {name: arrays[name] for name in sizes}
    except (zlib.error, EOFError, SyntaxError) as error:  # of what it says that it holds, or of what it does
        raise ValueError("it is damaged") from error
    wrong = [name for name, array in found.items() if array.dtype.kind != "f" or not np.all(np.isfinite(array))]
    if wrong:
        raise DataError(f"there is something in the {wrong[0]} of '{path}' that is not a number; make the result anew")
    return found


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file whole or not at all, also when the machine stops in the middle."""
    from sottovoce.within import check_file  # a run that is not written down has no need of it

    check_file(path)
    part = _part(path, content)
    try:
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def _part(path: Path, content: bytes) -> Path:
    """The content on the disk, beside the file that it is to be."""
    beside = path.with_name(path.name + ".part")
    try:
        with open(beside, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    return beside


def _replace_all(folder: Path, files: Mapping[str, bytes]) -> None:
    """One run's files in the place of another's, the head last; until all are on the disk nothing is taken away."""
    parts: dict[str, Path] = {}
    try:
        for name, content in files.items():
            parts[name] = _part(folder / name, content)
        for name in OF_ONE_RUN:  # the head first: without it there is no result
            (folder / name).unlink(missing_ok=True)
        for name, part in parts.items():
            os.replace(part, folder / name)
    finally:
        for part in parts.values():
            part.unlink(missing_ok=True)


def environment(engine: str, seconds: float, runs: int = 1, spec: Spec | None = None) -> dict[str, Any]:
    """Under which circumstances a run was made, with how many others beside it; on which device, if on one.

    Of a spec, also with whose choices that are not ours.
    """
    about = ENGINES[engine].about if engine in ENGINES else None
    others: dict[str, Any] = {} if about is None else {"device": about(), "runs": runs}
    if plugins.REGISTERED:
        parts = [] if spec is None else [part for part in spec.to_dict().values() if isinstance(part, dict)]
        needed = plugins.used([engine, *(text for part in parts for text in part.values())])
        others |= {"plugins": needed} if needed else {}
    return {
        "sottovoce": __version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "machine": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
        "engine": engine,
        "seconds": round(seconds, 3),
        "date": datetime.now(UTC).date().isoformat(),
        **others,
    }
