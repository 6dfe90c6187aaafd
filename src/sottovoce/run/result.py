"""The result of a run: a model for each node, a tidy history, what was released, and under which circumstances.

Saved as a folder:

    result.json     spec, privacy, public numbers, environment, and what the other files must hash to; written last
    model.npz       every node's model, and statistics where those were released
    schema.toml, estimator.json, …     what the model needs besides, if anything (`beside`)
    history.parquet     of a simulation: one row an observation

The history is computed from the data outside the mechanism. A run with a guarantee saves none in its folder, unless the
user requests it, and then in `NOT-PRIVATE-history.parquet`: anyone who publishes the folder publishes that file, too.

A folder keeps one release. Another one replaces it only if nothing is lost, or by force.
"""

import hashlib
import io
import json
import os
import platform
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, cast

import numpy as np

from sottovoce import plugins
from sottovoce._types import Array
from sottovoce._version import __version__
from sottovoce.bounded import MAX_JSON_BYTES, read_bounded
from sottovoce.engine import ENGINES
from sottovoce.errors import DataError, PrivacyError, SottovoceError, SpecError
from sottovoce.features import Additive
from sottovoce.privacy.statement import PrivacyStatement
from sottovoce.run.plan import Public
from sottovoce.run.scale import AS_IT_IS, Scale
from sottovoce.run.spec import Spec
from sottovoce.run.verify import verify

if TYPE_CHECKING:
    from sottovoce.inference.table import CoefficientTable

FORMAT = 2
HEAD, MODEL, HISTORY = "result.json", "model.npz", "history.parquet"
EVALUATION = "evaluation.json"
"""What a private evaluation found, where the statement covers one."""
ESTIMATOR = "estimator.json"
"""Parameters of an estimator that was saved as one."""
BUDGETED = "budget"
"""In the environment of a run that was paid from a ledger: true; which ledger is not said."""
OPEN_HISTORY = "NOT-PRIVATE-history.parquet"
"""The history of a run with a guarantee, if the user requested it."""
OF_ONE_RUN = (HEAD, MODEL, HISTORY, OPEN_HISTORY, EVALUATION, ESTIMATOR, "layout.json", "audit.json", "report.html")
"""What a folder loses when another run takes its place."""
NOT_NEEDED = (HISTORY, OPEN_HISTORY, EVALUATION)
"""Without which a result is still whole."""
NOT_PRIVATE = "not private: computed from the data outside the mechanism, and covered by no guarantee"


class Observation(TypedDict):
    """One evaluation of a run, outside the mechanism: a row of the history."""

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
        """One number of a row; not a number where the row has none."""
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
    features : names of the columns, where the data had them; `feature_names` are those of the weights
    nodes : names of the nodes
    environment : versions, machine and engine; of a simulation also its wall time
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

    def __post_init__(self) -> None:
        """Drop the wall time of a run that is no simulation: it may depend on a record, as on its many entries."""
        if not self.statement.simulation:
            timeless = {name: value for name, value in self.environment.items() if name != "seconds"}
            object.__setattr__(self, "environment", timeless)

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
        """Return the range that targets were clipped to, in their units: public, or found from noisy counts."""
        if "targets" not in self.public:
            return self.scale.targets
        low, high = (self.scale.middle + self.scale.half * end for end in self.public["targets"])
        return low, high

    def with_classes(self, order: Sequence[Any]) -> "Result":
        """The same model with its classes in another order; of two the last is the positive class.

        Parameters
        ----------
        order : the classes of this result, each once; others leave it as it is
        """
        wanted, names = [str(each) for each in order], [str(each) for each in self.classes or ()]
        if self.classes is None or wanted == names or sorted(wanted) != sorted(names):
            return self
        places = [names.index(name) for name in wanted]
        classes = tuple(self.classes[place] for place in places)
        if len(classes) == 2:  # scores change their sign, and so does the side that a score at the threshold is on
            threshold = float(np.nextafter(-self.scale.threshold, np.inf)) + 0.0
            link = None if self.scale.link is None else (self.scale.link[0], 0.0 - self.scale.link[1])
            scale = replace(self.scale, threshold=threshold, link=link)
            public = self.public.copy()
            if "inference" in public:
                published = public["inference"].copy()
                published["reversed"] = not published["reversed"]
                public["inference"] = published
            return replace(self, models=0.0 - self.models, classes=classes, scale=scale, public=public)
        models = self.models.reshape(len(self.models), len(classes), -1)[:, places]
        return replace(self, models=models.reshape(self.models.shape), classes=classes)

    def summary(self, confidence: float = 0.95) -> "CoefficientTable":
        """The table of estimates with intervals that count sampling and privacy noise; of a run that released them."""
        from sottovoce.run.inference import table_of

        return table_of(self, confidence)

    @property
    def columns(self) -> int:
        """How many columns a record has, before the map of columns."""
        of = self.spec.problem.features
        return of.columns if isinstance(of, Additive) else int(self.coef.shape[-1])

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """Names of what the weights belong to: columns or, of an additive model, functions of them."""
        of = self.spec.problem.features
        return of.names(self.features) if isinstance(of, Additive) else self.features

    def rows(self, X: Any) -> Any:
        """Records as the weights take them: within their bound or, of an additive model, as functions of columns."""
        of = self.spec.problem.features
        if isinstance(of, Additive):
            return of.rows(X, self.public.get("distribution"))
        return self.scale.rows(X)

    def _by_output(self) -> Array:
        K = self.spec.problem.outputs
        return self.model if K == 1 else self.model.reshape(K, -1)

    def decide(self, X: Any) -> Array:
        """⟨c, x⟩ + intercept for new records; (records, K) of K outputs."""
        if X.shape[1] != self.columns:
            raise DataError(f"the model has {self.columns} features, but these records have {X.shape[1]}")
        if not np.all(np.isfinite(self.model)):
            raise DataError("the model holds numbers that are not finite: its run diverged; train it anew")
        return np.asarray(self.rows(X) @ self.coef.T) + self.intercept

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
        check_overwrite(folder, self, force)
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
        features, of = width // K - (self.spec.problem.intercept > 0), self.spec.problem.features
        wrong = width % K or features < 1 or (isinstance(of, Additive) and features != of.width)
        wrong = wrong or (self.features is not None and len(self.features) != self.columns)
        if wrong or labels not in ((0, 2) if K == 1 else (0, K)):
            raise DataError(f"'{folder}' holds no whole result: its names are not those of its model; make it anew")
        return self

    def restate(
        self, folder: str | Path, beside: Mapping[str, bytes] | None = None, before: PrivacyStatement | None = None
    ) -> Path:
        """Say in the folder of this very result what its statement is now, and what came beside it; all else stays.

        The statement is written first, so that it covers what is written after it, whatever stops this.

        Parameters
        ----------
        folder : of this result
        beside : further files that belong to it
        before : the statement that was loaded, which another process may have changed since; by default this one's
        """
        folder, more = Path(folder), dict(beside or {})
        with _alone(folder):
            head = _head(folder)
            if head["privacy"] != json.loads(json.dumps((before or self.statement).to_dict())):
                raise PrivacyError(
                    f"another process has changed the statement of '{folder}' meanwhile; what was computed here is not "
                    "shown, as that statement does not cover it: see `sottovoce account` for what it covers now"
                )
            head["privacy"] = self.statement.to_dict()
            write_atomically(folder / HEAD, _text(head))
            for name, content in more.items():
                write_atomically(folder / name, content)
            head["files"] |= {name: _digest(content) for name, content in more.items()}
            write_atomically(folder / HEAD, _text(head))
        return folder

    @classmethod
    def load(cls, folder: str | Path) -> "Result":
        """Read a saved result back; one of which a file was changed, or not written whole, is refused."""
        from zipfile import BadZipFile

        import pyarrow as pa

        folder = Path(folder)
        head = _head(folder)
        try:
            arrays = _arrays(folder / MODEL, head["public"])
            files = head.pop("files")
            check_unchanged(folder, files)
            listed = [name for name in (HISTORY, OPEN_HISTORY) if name in files]
            kept = next((name for name in listed if (folder / name).exists()), None)
            history = History() if kept is None else History.from_table(_history(folder / kept))
            for name in ("classes", "features", "nodes"):
                head[name] = None if head[name] is None else tuple(head[name])
            del head["format"]
            head["scale"] = Scale.from_dict(head["scale"])
            missing = plugins.missing(head["environment"].get("plugins"))
            if missing is not None:
                raise DataError(f"the result in '{folder}' cannot be read: {missing}")
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


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Within it no other process changes what a result says of itself; only POSIX systems have such locks."""
    try:
        import fcntl
    except ImportError:
        yield
        return
    while True:
        try:
            file = open(folder / HEAD, "r+b")
        except OSError as error:
            raise _unreadable(folder, error) from None
        with file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if os.fstat(file.fileno()).st_ino == os.stat(folder / HEAD).st_ino:  # else it was replaced meanwhile
                yield
                return


NAMES: dict[str, Any] = {"classes": (str, int, float), "features": str, "nodes": str}
"""Of what the lists of a head are made."""
NUMBERS = ("n", "m", "iota", "beta", "beta_error", "lipschitz", "noise", "depth", "skips")
"""Of the public numbers, those that are one."""
COUNTS = ("records", "participations")
"""And those that are lists of them."""


def _head(folder: Path) -> dict[str, Any]:
    """What `result.json` says, as far as it is one of ours."""
    try:
        head = json.loads(read_bounded(folder / HEAD, MAX_JSON_BYTES).decode("utf-8"))
        _check_head(head)
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise _unreadable(folder, error) from None
    if head.get("format") != FORMAT:
        older = "sottovoce 0.1, which this version does not read" if head.get("format") == 1 else "another version"
        raise DataError(f"the result in '{folder}' was saved by {older}; make it anew")
    if MODEL not in (head["files"] if isinstance(head.get("files"), dict) else {}):
        raise DataError(f"the result in '{folder}' does not say which model it is of; make it anew")
    return head


def _check_head(head: Any) -> None:
    """Raise TypeError where a part of it is of another kind than in any of ours."""
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


def _unreadable(folder: Path, error: Exception) -> DataError:
    if not folder.is_dir():
        what = "is a file, and no folder" if folder.exists() else "is not there"
        return DataError(f"'{folder}' holds no readable result: it {what}; give a folder that train --out wrote")
    if isinstance(error, FileNotFoundError):
        return DataError(
            f"'{folder}' holds no readable result: no {HEAD} is in it; give a folder that train --out wrote"
        )
    return DataError(
        f"'{folder}' holds no readable result: its files are damaged ({type(error).__name__}); restore a copy, or "
        "train anew"
    )


def check_unchanged(folder: Path, files: Mapping[str, str]) -> None:
    """Every file that a result was saved with is there, as it was written."""
    for name, wanted in files.items():
        path = folder / Path(name).name
        if path.name in NOT_NEEDED and not path.exists():
            continue
        if not path.exists():
            raise DataError(f"'{folder}' holds no whole result: {name} is gone; save it anew")
        if _digest(_content(path)) != wanted:
            raise DataError(
                f"'{path}' is not the file that the result was saved with: it was changed since, or comes from "
                "another run; restore it, or make the result anew"
            )


def belonging(folder: Path, name: str) -> bytes | None:
    """A file that belongs to the result in a folder, as it was saved; None where it has none of that name."""
    files, path = _head(folder)["files"], folder / name
    if name not in files or not path.exists():
        return None
    check_unchanged(folder, {name: files[name]})
    return _content(path)


def belonging_object(folder: Path, name: str) -> dict[str, Any] | None:
    """The JSON object in a file that belongs to a result; None where it has none of that name."""
    content = belonging(folder, name)
    if content is None:
        return None
    try:
        found = json.loads(content)
        if not isinstance(found, dict):
            raise ValueError
    except (ValueError, RecursionError):
        raise DataError(f"'{folder / name}' holds no JSON object; restore it, or make the result anew") from None
    return found


def _content(path: Path) -> bytes:
    """The content of a file of a result."""
    try:
        return read_bounded(path, MAX_FILE_BYTES)
    except OSError as error:
        raise DataError(f"'{path}' cannot be read ({error.strerror}); restore it, or make the result anew") from None


STORED = "stored"
"""The threshold that an evaluation of the run found, by its name."""


def chosen_threshold(folder: Path, result: Result, choice: str | float | None) -> Result:
    """The result with the threshold that was chosen for its answers.

    Parameters
    ----------
    folder : the saved run
    result : what was loaded from it
    choice : 'stored', the one that `sottovoce evaluate --recall` or `--rate` found and kept with the run; a number; or
        None for the run's own
    """
    if choice is None:
        return result
    if result.classes is None or len(result.classes) != 2:
        raise SpecError("only a classifier of two classes has a threshold; leave --threshold out")
    if choice != STORED:
        try:
            return replace(result, scale=result.scale.with_threshold(float(choice)))
        except ValueError:
            raise SpecError(f"--threshold is 'stored' or a number, not '{choice}'") from None
    kept = belonging_object(folder, EVALUATION)
    found = None if kept is None else kept.get("threshold")
    if found is None:
        raise SpecError(
            f"no threshold is stored with the run in '{folder}'; find one with `sottovoce evaluate {folder} FILE "
            "--recall 0.9`, or give a number"
        )
    return replace(result, scale=result.scale.with_threshold(float(found)))


def check_overwrite(folder: str | Path, new: "Result | Spec", force: bool = False) -> None:
    """Refuse a folder that holds another release; the same simulation, or the same models, may be written again.

    A spec suffices to check before a run, so that nothing runs in vain.
    """
    folder = Path(folder)
    if force or not (folder / HEAD).exists():
        return
    spec = new.spec if isinstance(new, Result) else new
    try:
        there = Spec.from_dict(_head(folder)["spec"])
        same = there == spec and (spec.seed is not None or (isinstance(new, Result) and _holds(folder, new)))
    except (ValueError, KeyError, TypeError, AttributeError):  # unreadable content counts as another release
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


MAX_FILE_BYTES = 2**33
"""Bytes of an array of a result, unpacked."""
SMALL, RATIO = 2**26, 100
"""Bytes that any file may unpack to, and how many times its size a larger one may: noise cannot be packed."""
CELLS = 2**24
"""Cells of a history."""


def _history(path: Path) -> Any:
    """The table of a history; not even unpacked where it has more cells than any has."""
    import pyarrow.parquet as pq

    file = pq.ParquetFile(io.BytesIO(_content(path)))
    about = file.metadata
    unpacked = sum(about.row_group(i).total_byte_size for i in range(about.num_row_groups))
    if about.num_rows * about.num_columns > CELLS or unpacked > 8 * SMALL:
        raise ValueError("it holds more than a history can")
    return file.read()


def _arrays(path: Path, public: Any) -> dict[str, Array]:
    """Models, and statistics if there are any; not even unpacked where they are more than the run's, or than fits."""
    from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile

    n, m = int(public["n"]), int(public["m"])
    numbers = {"models": n * m, "statistics": (m + 1) * (m + 2) // 2}
    content = read_bounded(path, MAX_FILE_BYTES)
    with ZipFile(io.BytesIO(content)) as archive:
        sizes = {entry.filename.removesuffix(".npy"): entry.file_size for entry in archive.infolist()}
        kinds = {entry.compress_type for entry in archive.infolist()}
    if not kinds <= {ZIP_STORED, ZIP_DEFLATED}:  # others unpack all at once, whatever size they say
        raise ValueError("it is packed in another way than results are")
    if "models" not in sizes or not sizes.keys() <= numbers.keys():
        raise ValueError("there are other arrays")
    if any(size > min(8 * numbers[name] + 1024, MAX_FILE_BYTES) for name, size in sizes.items()):  # and its own head
        raise ValueError("there is more than the numbers of this run")
    if sum(sizes.values()) > max(SMALL, RATIO * len(content)):
        raise ValueError("it unpacks to far more than it holds")
    try:
        with np.load(io.BytesIO(content)) as arrays:
            found = {name: arrays[name] for name in sizes}
    except (zlib.error, EOFError, SyntaxError) as error:  # of what it says that it holds, or of what it does
        raise ValueError("it is damaged") from error
    wrong = [name for name, array in found.items() if array.dtype.kind != "f" or not np.all(np.isfinite(array))]
    if wrong:
        raise DataError(f"there is something in the {wrong[0]} of '{path}' that is not a number; make the result anew")
    return found


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file whole or not at all, also when the machine stops in the middle."""
    from sottovoce.limits import check_file  # needed only if a result is written

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
    device = ENGINES[engine].device if engine in ENGINES else None
    others: dict[str, Any] = {} if device is None else {"device": device.name(), "runs": runs}
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
