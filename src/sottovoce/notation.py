"""The one small notation in which a choice is written down: a name and its numbers, as in ``edges(2)``.

Text is read where it comes in (a file, an option, JSON, a parameter) and nowhere else: `Choices.read` turns it into a
frozen value or refuses it in one sentence. Inside there are values only, and ``str(value)`` is the notation again, so
that `read` and ``str`` are each other's inverse and two spellings of one choice (``l2(5e-4)``, ``l2:0.0005``) are one
value. On the command line ``edges:2`` saves quoting the brackets.
"""

import inspect
import re
from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

from sottovoce.errors import SottovoceError, SpecError

_CALL = re.compile(r"\s*([a-z][a-z0-9_]*)\s*(?:\((.*)\)|:(.+))?\s*", re.DOTALL)
_EXACT = 2**53  # whole numbers up to here are written without a point

Value = TypeVar("Value")


class Call(NamedTuple):
    """A parsed choice: name, numbers by position, values by name."""

    name: str
    args: tuple[float, ...]
    kwargs: dict[str, float | str]


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
        self, noun: str, rows: dict[str, Callable[..., Value]], error: type[SottovoceError] = SpecError
    ) -> None:
        super().__init__(rows)
        self.noun, self.error = noun, error

    @property
    def usage(self) -> str:
        """How each choice is written."""
        return ", ".join(_usage(name, row) for name, row in self.items())

    def read(self, text: str) -> Value:
        """The value that a text stands for, or one sentence that says how to write it."""
        name, args, kwargs = parse(text) if isinstance(text, str) else ("", (), {})
        if name not in self:
            raise self.error(f"there is no {self.noun} '{name or text}'; write one of {self.usage}")
        try:
            bound = inspect.signature(self[name]).bind(*args, **kwargs)
        except TypeError:
            raise self.error(f"{self.noun} '{text}' is malformed; write {_usage(name, self[name])}") from None
        return self[name](*bound.args, **bound.kwargs)


def parse(text: str) -> Call:
    """Read ``name``, ``name(1, b=2)`` or ``name:1,b=2``.

    Examples
    --------
    >>> parse("edges(2)")
    Call(name='edges', args=(2,), kwargs={})
    >>> parse("small_world:k=4,p=0.1").kwargs
    {'k': 4, 'p': 0.1}
    """
    match = _CALL.fullmatch(text)
    if not match:
        raise SpecError(f"{text!r} is not a choice; write a name with its numbers, such as 'edges(2)' or 'edges:2'")
    inside = match[2] if match[2] is not None else match[3]
    args: list[float] = []
    kwargs: dict[str, float | str] = {}
    for part in filter(None, (p.strip() for p in (inside or "").split(","))):
        key, equals, value = part.partition("=")
        if equals:
            kwargs[key.strip()] = _value(value.strip())
        else:
            number = _value(part)
            if isinstance(number, str):
                raise SpecError(f"{part!r} in {text!r} is not a number")
            args.append(number)
    return Call(match[1], tuple(args), kwargs)


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
    whole = value == value and abs(value) < _EXACT and value == int(value)
    return str(int(value)) if whole else repr(float(value))


def _value(text: str) -> float | str:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _usage(name: str, row: Callable[..., Value]) -> str:
    signature = inspect.signature(row)
    if not signature.parameters:
        return name
    shown = [str(p.replace(annotation=inspect.Parameter.empty)) for p in signature.parameters.values()]
    return f"{name}({', '.join(shown)})"
