"""Plug-ins: register a loss, a method, a graph, a baseline or a metric of your own under a name.

`register` adds a row to the table of its kind. From then on texts, options, JSON, run files, estimators and errors know
it; engines run it, or refuse it by name. It never replaces a row that is there, nor changes what one does: compiled
engines know the built-in losses only, and a registered one runs on NumPy. `register` checks it by the laws of
`sottovoce.testing`, unless `check=False`.

A package that is installed need not be imported: what it names in the entry-point group ``sottovoce.plugins`` is loaded
when a name is requested that no table has::

    [project.entry-points."sottovoce.plugins"]
    cauchy = "cauchy_loss:register"

A result that was made with a plug-in says so, and a reader without that plug-in gets an error that names it.

What a plug-in can and cannot break: every record's subgradient is clipped to L, so that a loss with a false bound costs
accuracy and no privacy, and one-shot methods, which clip nothing, refuse it; a method gets noised numbers only; graphs,
activations, weight rules and averagings are public plans and post-processing. An engine, a noise, a law, a sampling or
an adversary is part of the mechanism, or of what is stated of it: installing one is trusting it as much as sottovoce.
Baselines, data sets, feature maps, partitions and metrics are for simulations (`sottovoce compare`), which are not
private.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import Any, NamedTuple

from sottovoce.errors import SottovoceError, SpecError

GROUP = "sottovoce.plugins"
"""Of entry points; each is a function without arguments that registers, or a module that does when it is imported."""

TABLES = {
    "loss": "problem.losses.LOSSES",
    "regulariser": "problem.regularizers.REGULARIZERS",
    "graph": "network.graphs.GRAPHS",
    "activation": "network.activation.ACTIVATIONS",
    "weight rule": "network.mixing.WEIGHTS",
    "averaging": "network.averaging.AVERAGINGS",
    "method": "algorithm.methods.METHODS",
    "sequence": "algorithm.method.SEQUENCES",
    "noise": "privacy.calibration.NOISES",
    "law": "privacy.release.LAWS",
    "sampling": "privacy.sampling.SAMPLINGS",
    "adversary": "privacy.release.ADVERSARIES",
    "engine": "engine.job.ENGINES",
    "baseline": "experiments.baselines.BASELINES",
    "data set": "experiments.data.REAL",
    "feature map": "experiments.data.FEATURE_MAPS",
    "partition": "experiments.data.PARTITIONS",
    "metric": "experiments.compare.metrics.METRICS",
}
"""What can be registered, and where its table is."""
NOUNS = {"activation scheme": "activation"}
"""Kinds by what their tables call them, where that is another word."""
VALUES = ("engine", "baseline")
"""Kinds whose rows are values; the others' are functions."""
PLAIN = (*VALUES, "data set", "metric")
"""Kinds whose tables hold rows as they are, and have no notation for numbers behind a name."""
_NAME = re.compile(r"[a-z][a-z0-9_]*")
_WORDS = re.compile(r"[a-z][a-z0-9_]*")


class Registered(NamedTuple):
    """A choice of a plug-in."""

    kind: str
    name: str
    module: str
    """Where it was made."""

    @property
    def origin(self) -> str:
        """The package that it comes from, with its version, or else the module."""
        from importlib import metadata  # slow to load

        for package in metadata.packages_distributions().get(self.module.partition(".")[0], ()):
            return f"{package} {metadata.version(package)}"
        return self.module


REGISTERED: dict[tuple[str, str], Registered] = {}
"""All choices that are not ours, by kind and name."""
_loaded: dict[str, str | None] = {}


def register(kind: str, row: Any, name: str | None = None, *, check: bool = True) -> None:
    """Add a choice of one's own to the table of its kind.

    Parameters
    ----------
    kind : a key of `TABLES`: 'loss', 'graph', 'method', 'averaging', 'baseline', 'metric', …
    row : what the table holds: a `Loss`, an `Engine`, a `Baseline`, a function without arguments that gives one or two
        `Table` (data set), a function of scores and truth (metric), else a function of the choice's numbers (of a
        graph, a method, a weight rule, a partition or a feature map, whose first argument is the number of nodes, the
        ingredients, the links of a round, a `Parting` or the rows)
    name : how it is requested; by default the row's own name
    check : whether to run the check of its kind in `sottovoce.testing`, with its default numbers, and to refuse what
        fails it. A package that runs the check in its own tests may give False

    Examples
    --------
    >>> import numpy as np
    >>> from sottovoce import register
    >>> from sottovoce.network.graphs import GRAPHS
    >>> def wheel(n: int, spokes: int = 1):
    ...     "A ring, and a hub that is linked with every so many-th node of it."
    ...     ring = [(i, i % (n - 1) + 1) for i in range(1, n)]
    ...     return np.array(ring + [(0, i) for i in range(1, n, spokes)])
    >>> register("graph", wheel)
    >>> GRAPHS.read("wheel:2")(7).degrees
    array([3, 3, 2, 3, 2, 3, 2])
    >>> register("graph", wheel, "ring")
    Traceback (most recent call last):
    sottovoce.errors.SpecError: there is a graph 'ring' already, and runs that are written down mean that one; ...
    """
    kind = {"regularizer": "regulariser"}.get(kind, kind)  # results name the kind as version 0.1 did
    if kind not in TABLES:
        raise SpecError(f"there is no kind '{kind}' of choice to register; the kinds are {', '.join(TABLES)}")
    named = name if name is not None else getattr(row, "name", None) or getattr(row, "__name__", "")
    if not isinstance(named, str) or not _NAME.fullmatch(named):
        raise SpecError(f"{named!r} is no name of a {kind}; take small letters, digits and _, such as 'my_{kind}'")
    if not callable(row) and kind not in VALUES:
        raise SpecError(f"{kind} '{named}' cannot be called with its numbers; give a function, or a Loss")
    abstract = sorted(getattr(row, "__abstractmethods__", ())) if isinstance(row, type) else []
    if abstract:
        raise SpecError(
            f"{kind} '{named}' is an abstract class, of which no value can be made; define {', '.join(abstract)} in "
            f"{row.__name__}"
        )
    if getattr(row, "name", named) != named:
        raise SpecError(f"this {kind} calls itself '{row.name}', and cannot be registered as '{named}'")
    module = _module_of(row)
    table, known = _table(kind), REGISTERED.get((kind, named))
    if named in table and (known is None or known.module != module):  # a cell of a notebook may be run again
        raise SpecError(
            f"there is a {kind} '{named}' already, and runs that are written down mean that one; take another name"
        )
    before = table.get(named)
    _add(kind, table, named, row)
    REGISTERED[kind, named] = Registered(kind, named, module)
    if check:
        try:
            _check(kind, named)
        except BaseException:  # it is not registered after all
            del table[named]
            if before is None or known is None:
                del REGISTERED[kind, named]
            else:
                table[named], REGISTERED[kind, named] = before, known
            raise


def _check(kind: str, name: str) -> None:
    """Hold a registered choice to the laws of its kind."""
    testing = import_module("sottovoce.testing")  # imports all that a run needs
    law = testing.CHECKS.get(kind)
    if law is None:
        return
    check = f"sottovoce.testing.check_{kind.replace(' ', '_')}"
    how = f"correct it, or register it with check=False and run {check} on it yourself"
    try:
        law(name)
    except testing.LawBroken as error:
        raise testing.LawBroken(f"the {kind} '{name}' is not registered: {error}; {how}") from error
    except SottovoceError as error:
        raise type(error)(f"the {kind} '{name}' is not registered: its check failed ({error}); {how}") from error


def unregister(kind: str, name: str) -> None:
    """Take a registered choice out again, as tests do; ours stay."""
    if REGISTERED.pop((kind, name), None) is not None:
        del _table(kind)[name]


def load(force: bool = False) -> list[str]:
    """Load what installed packages name in `GROUP`, once; sentences about those that could not be."""
    if force or not _loaded:
        from importlib import metadata  # slow to load

        _loaded[""] = None  # even if there are none
        for entry in metadata.entry_points(group=GROUP):
            if entry.name not in _loaded or force:
                _loaded[entry.name] = _load(entry)
    return [reason for reason in _loaded.values() if reason is not None]


def _load(entry: Any) -> str | None:
    package = getattr(entry.dist, "name", None) or entry.module
    try:
        found = entry.load()
        if callable(found):
            found()
    except Exception as error:  # someone else's code: whatever it is, our own choices go on working
        return f"the plug-in '{entry.name}' of {package} did not load ({type(error).__name__}: {error})"
    return None


def found(kind: str, name: str, table: Mapping[str, Any]) -> bool:
    """Whether a name that a table lacks is there once plug-ins are loaded."""
    if NOUNS.get(kind, kind) not in TABLES:
        return False
    load()
    return name in table


def hint(kind: str) -> str:
    """What to say beside a name that it is unknown: which plug-ins did not load."""
    wrong = load() if NOUNS.get(kind, kind) in TABLES else []
    return f" ({'; '.join(wrong)})" if wrong else ""


def used(texts: Iterable[Any]) -> list[dict[str, str]]:
    """Which registered choices stand in these texts: what a saved run says of its plug-ins."""
    words = {word for text in texts if isinstance(text, str) for word in _WORDS.findall(text)}
    return [each._asdict() | {"origin": each.origin} for each in REGISTERED.values() if each.name in words]


def missing(needed: Any) -> str | None:
    """A sentence about the first of these choices (see `used`) that is not there; None where all are."""
    for each in needed if isinstance(needed, list) else ():
        said = {key: str(value) for key, value in each.items()} if isinstance(each, dict) else {}
        kind, name = said.get("kind", ""), said.get("name", "")
        if kind in TABLES and kind != "engine" and name not in _table(kind) and not found(kind, name, _table(kind)):
            return (
                f"it needs the {kind} '{name}' of {said.get('origin')}, which nobody has registered here; install that "
                "package, or import what registers it, and try again"
            )
    return None


def _table(kind: str) -> Any:
    module, _, name = TABLES[kind].rpartition(".")
    return getattr(import_module(f"sottovoce.{module}"), name)


def _module_of(row: Any) -> str:
    made: Callable[..., Any] = (
        getattr(row, "slope_formula", None) or getattr(row, "run_jobs", None) or getattr(row, "make", None) or row
    )
    return str(getattr(made, "__module__", None) or type(row).__module__)


def _add(kind: str, table: Any, name: str, row: Any) -> None:
    if kind in PLAIN:
        table[name] = row
    elif kind == "graph":
        import_module("sottovoce.network.graphs").add_graph(name, row)
    else:
        table.add(name, row)
