"""The one small notation in which a choice is written down: a name and its numbers, as in ``edges(2)``.

Text is read where it comes in (a file, an option, JSON, a parameter) and nowhere else: `Choices.read` turns it into a
frozen value or refuses it in one line. Inside there are values only, and ``str(value)`` is the notation again, so
that `read` and ``str`` are each other's inverse and two spellings of one choice (``l2(5e-4)``, ``l2:0.0005``) are one
value. On the command line ``edges:2`` saves quoting the brackets.
"""

import inspect
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Generic, NamedTuple, TypeVar, overload

from sottovoce import plugins
from sottovoce.errors import SottovoceError, SpecError

_CALL = re.compile(r"\s*([a-z][a-z0-9_]*)\s*(?:\((.*)\)|:(.+))?\s*", re.DOTALL)
_EXACT = 2**53  # whole numbers up to here are written without a point

Value = TypeVar("Value")
Subject = TypeVar("Subject")
Made = TypeVar("Made")


class Call(NamedTuple):
    """A parsed choice: name, numbers by position, values by name, and the text that held them."""

    name: str
    args: tuple[float | str, ...]
    kwargs: dict[str, float | str]
    inside: str


@dataclass(frozen=True)
class Chosen(Generic[Subject, Made]):
    """A function of something that is not known yet, with its other arguments: a graph before it has its nodes.

    Equal where name and numbers are, whether they were written out or left at their defaults.
    """

    name: str
    numbers: tuple[tuple[str, Any], ...]
    function: Callable[..., Made] = field(compare=False, repr=False)
    noun: str

    def __call__(self, subject: Subject) -> Made:
        """What it comes to for the subject."""
        return self.function(subject, **dict(self.numbers))

    def __str__(self) -> str:
        """The first number always, the others where they are not the default."""
        defaults = inspect.signature(self.function).parameters
        first, rest = self.numbers[:1], self.numbers[1:]
        args = [value for _, value in first if value is not None]
        return write(self.name, *args, **{key: value for key, value in rest if value != defaults[key].default})

    def __reduce__(self) -> tuple[Any, ...]:
        """Sent to another process, it is found in that process's own table."""
        return _found, (self.function.__module__, self.noun, self.name, self.numbers)


class Choices(dict[str, Callable[..., Value]], Generic[Value]):
    """A table of what can be chosen: names, and what makes a value of the numbers behind a name.

    Adding a choice is one row. A row is anything that can be called with the numbers, by position or by name; the usage
    in errors is its signature.

    Parameters
    ----------
    noun : what is chosen, for errors
    rows : the table
    error : the class of its errors

    Examples
    --------
    >>> choices = Choices("graph", {"ring": lambda: "a ring", "small_world": lambda k, p=0.1: f"{k} {p}"})
    >>> choices.read("small_world(k=4, p=0.5)"), choices.usage
    ('4 0.5', 'ring, small_world(k, p=0.1)')
    >>> choices.read("rings")
    Traceback (most recent call last):
    sottovoce.errors.SpecError: there is no graph 'rings'; write one of ring, small_world(k, p=0.1)
    """

    def __init__(
        self, noun: str, rows: Mapping[str, Callable[..., Value]], error: type[SottovoceError] = SpecError
    ) -> None:
        super().__init__(rows)
        self.noun, self.error = noun, error
        self.later = False
        """Whether what is read is a function, of something that comes later."""

    @classmethod
    def of_functions(
        cls, noun: str, functions: Mapping[str, Callable[..., Made]], error: type[SottovoceError] = SpecError
    ) -> "Choices[Chosen[Any, Made]]":
        """A table of functions whose first argument comes later; what is read is `Chosen`.

        Examples
        --------
        >>> powers = Choices.of_functions("power", {"square": lambda x: x**2, "power": lambda x, k=3.0: x**k})
        >>> powers.read("power:2.0")(5), str(powers.read("power")), powers.read("power") == powers.read("power:3")
        (25.0, 'power(3)', True)
        """
        table: Choices[Chosen[Any, Made]] = cls(noun, {}, error)  # type: ignore[assignment]
        table.later, _TABLES[noun] = True, table
        for name, function in functions.items():
            table.add(name, function)
        return table

    def add(self, name: str, row: Callable[..., Any]) -> None:
        """One more row; of a table of functions, one more function."""
        made: Callable[..., Any] = _later(self.noun, name, row) if self.later else row
        self[name] = made

    @property
    def usage(self) -> str:
        """How each choice is written."""
        return ", ".join(_usage(name, row) for name, row in self.items())

    def read(self, text: str) -> Value:
        """Return the value that a text stands for; an unknown text is an error that says how to write it."""
        if not isinstance(text, str):
            raise self.error(f"there is no {self.noun} {text!r}; write one of {self.usage}")
        call = parse(text)
        if call.name not in self:
            plugins.found(self.noun, call.name, self)
        only = _only_text(self[call.name]) if call.name in self and call.inside else None
        if only is not None:  # a path may hold anything
            return self.make(call.name, call.inside.removeprefix(f"{only}="))
        return self.make(call.name, *call.args, **call.kwargs)

    def make(self, name: str, *args: Any, **kwargs: Any) -> Value:
        """The value of a name and its numbers.

        Examples
        --------
        >>> Choices("size", {"large": lambda by=2.0: 10 * by}).make("large", by=3)
        30
        """
        if name not in self and not plugins.found(self.noun, name, self):
            raise self.error(f"there is no {self.noun} '{name}'; write one of {self.usage}{plugins.hint(self.noun)}")
        row = self[name]
        signature = inspect.signature(row)
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError:
            raise self.error(
                f"{self.noun} '{write(name, *args, **kwargs)}' is malformed; write {_usage(name, row)}"
            ) from None
        for key, value in bound.arguments.items():
            odd = [v for v in (value if isinstance(value, tuple) else (value,)) if isinstance(v, str)]
            if odd and not _is_text(signature.parameters[key]):
                raise self.error(f"{odd[0]!r} for {self.noun} '{name}' is not a number; write {_usage(name, row)}")
        return row(*bound.args, **bound.kwargs)


_TABLES: dict[str, Choices[Chosen[Any, Any]]] = {}


HOMES = {"graph": "sottovoce.network.graphs"}
"""Where the tables are made whose choices may stand within a choice of another table."""


def within(noun: str, text: str) -> Chosen[Any, Any]:
    """A choice that stands within another one, from the table with this noun; the caller need not know the table.

    Examples
    --------
    >>> str(within("graph", "small_world:4"))
    'small_world(4)'
    """
    import_module(HOMES[noun])  # which makes the table
    return _TABLES[noun].read(text)


def _found(module: str, noun: str, name: str, numbers: tuple[tuple[str, Any], ...]) -> Chosen[Any, Any]:
    import_module(module)  # which makes the table
    return _TABLES[noun].make(name, **dict(numbers))


class Field(Generic[Value]):
    """A field of a frozen dataclass that takes a value or its text, and holds the value.

    Parameters
    ----------
    table : the table that texts are names of
    default : the value if none is given; without a default the field is required

    Examples
    --------
    >>> from sottovoce.problem.losses import LOSSES, Loss
    >>> @dataclass(frozen=True)
    ... class Model:
    ...     loss: Field[Loss] = Field(LOSSES, LOSSES.read("hinge"))
    >>> str(Model().loss), Model("huber(2.0)") == Model("huber:2"), Model(LOSSES.make("huber", 3)).loss.slope_bound
    ('hinge', True, 3.0)
    """

    def __init__(self, table: Choices[Value], *default: Value) -> None:
        self.table, self.default = table, default

    def __set_name__(self, owner: type, name: str) -> None:
        """Know under which name the value is kept."""
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type) -> Value: ...
    @overload
    def __get__(self, instance: object, owner: type) -> Value: ...
    def __get__(self, instance: object | None, owner: type) -> Value:
        """The value; of the class itself, the default."""
        if instance is not None:
            return instance.__dict__[self._name]
        if not self.default:
            raise AttributeError(f"'{self._name}' has no default")
        return self.default[0]

    def __set__(self, instance: object, value: Value | str) -> None:
        """Read a text once, here."""
        unread = value is None or isinstance(value, str | bytes | int | float | list | dict | tuple)
        unread = unread or (self.table.later and not callable(value))
        instance.__dict__[self._name] = self.table.read(value) if unread else value  # type: ignore[arg-type]


def check_count(what: str, value: Any, most: int, least: int = 1, error: type[SottovoceError] = SpecError) -> int:
    """A whole number that is within reach.

    Examples
    --------
    >>> check_count("the number of rounds", 10**11, 10**8)
    Traceback (most recent call last):
    sottovoce.errors.SpecError: the number of rounds must be a whole number from 1 to 100,000,000, not 100000000000
    """
    try:
        whole = int(value)
        exact = whole == value and not isinstance(value, bool)
    except (TypeError, ValueError, OverflowError):
        whole, exact = 0, False
    if not exact or not least <= whole <= most:
        raise error(f"{what} must be a whole number from {least:,} to {most:,}, not {_shown(value)}")
    return whole


def check_real(
    what: str, value: Any, error: type[SottovoceError] = SpecError, zero: bool = False, *, least: float, most: float
) -> float:
    """A number that is within reach, or 0 where that means something.

    Examples
    --------
    >>> check_real("the clip", 1e308, least=1e-100, most=1e100)
    Traceback (most recent call last):
    sottovoce.errors.SpecError: the clip must be a number from 1e-100 to 1e+100, not 1e+308
    """
    try:
        real = math.nan if isinstance(value, bool | str) else float(value)
    except (TypeError, ValueError, OverflowError):
        real = math.nan
    if not (least <= real <= most or (zero and real == 0)):
        shown = f"{'0, or ' if zero else ''}a number from {least:g} to {most:g}, not {_shown(value)}"
        raise error(f"{what} must be {shown}")
    return real


def _shown(value: Any) -> str:
    """A value for a sentence, cut where it is long."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}…"


def parse(text: str) -> Call:
    """Read ``name``, ``name(1, b=2)`` or ``name:1,b=2``.

    Examples
    --------
    >>> parse("edges(2)")[:3]
    ('edges', (2,), {})
    >>> parse("small_world:k=4,p=0.1").kwargs
    {'k': 4, 'p': 0.1}
    >>> parse("pairs(3, graph=small_world(4, p=0.1))").kwargs
    {'graph': 'small_world(4, p=0.1)'}
    """
    match = _CALL.fullmatch(text)
    if not match:
        raise SpecError(f"{text!r} is not a choice; write a name with its numbers, such as 'edges(2)' or 'edges:2'")
    inside = (match[2] if match[2] is not None else match[3] or "").strip()
    args: list[float | str] = []
    kwargs: dict[str, float | str] = {}
    for part in filter(None, (p.strip() for p in _split(inside))):
        key, equals, value = part.partition("=")
        if equals and "(" not in key:
            kwargs[key.strip()] = _value(value.strip())
        else:
            args.append(_value(part))
    return Call(match[1], tuple(args), kwargs, inside)


def _split(inside: str) -> list[str]:
    """At the commas that stand in no brackets: a choice may hold another."""
    parts, depth = [""], 0
    for character in inside:
        depth += (character == "(") - (character == ")")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return parts


def write(name: str, *args: float, **kwargs: float | str) -> str:
    """The text of a choice; `parse` reads it back to the last digit.

    Examples
    --------
    >>> write("l2", 5e-4), write("small_world", k=4, p=1.0)
    ('l2(0.0005)', 'small_world(k=4, p=1)')
    """
    inside = [*map(_text, args), *(f"{key}={_text(value)}" for key, value in kwargs.items())]
    return f"{name}({', '.join(inside)})" if inside else name


def _text(value: float | str) -> str:
    if isinstance(value, str):
        return value
    whole = abs(value) < _EXACT and value == int(value)  # not a number is neither
    return str(int(value)) if whole else repr(float(value))


def _value(text: str) -> float | str:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _is_text(parameter: inspect.Parameter) -> bool:
    return "str" in str(parameter.annotation)


def _only_text(row: Callable[..., Any]) -> str | None:
    """The name of the one parameter of a row that takes a text and nothing else."""
    parameters = list(inspect.signature(row).parameters.values())
    return parameters[0].name if len(parameters) == 1 and _is_text(parameters[0]) else None


def _usage(name: str, row: Callable[..., Any]) -> str:
    parameters = inspect.signature(row).parameters.values()
    shown = [str(p.replace(annotation=inspect.Parameter.empty)) for p in parameters]
    return f"{name}({', '.join(shown)})" if shown else name


def _later(noun: str, name: str, function: Callable[..., Made]) -> Callable[..., Chosen[Any, Made]]:
    """A row that takes all arguments but the first."""
    signature = inspect.signature(function)
    rest = signature.replace(parameters=list(signature.parameters.values())[1:])

    def row(*args: Any, **kwargs: Any) -> Chosen[Any, Made]:
        bound = rest.bind(*args, **kwargs)
        bound.apply_defaults()
        return Chosen(name, tuple(bound.arguments.items()), function, noun)

    row.__signature__ = rest  # type: ignore[attr-defined]
    return row
