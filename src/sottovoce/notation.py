"""The one small notation in which a choice is written down: a name and its numbers, as in ``edges(2)``.

Used by every part of a spec (`l2(5e-4)`, `poisson(32)`, `small_world(k=4, p=0.1)`), on the command line (where
``edges:2`` saves quoting the brackets) and in saved results.
"""

import re
from typing import NamedTuple

from sottovoce.errors import SpecError

_CALL = re.compile(r"\s*([a-z][a-z0-9_]*)\s*(?:\((.*)\)|:(.+))?\s*", re.DOTALL)


class Call(NamedTuple):
    """A parsed choice: name, numbers by position, values by name."""

    name: str
    args: tuple[float, ...]
    kwargs: dict[str, float | str]


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


def write(name: str, *args: float) -> str:
    """The text of a choice; `parse` reads it back to the last digit.

    Examples
    --------
    >>> write("l2", 5e-4)
    'l2(0.0005)'
    """
    return f"{name}({', '.join(repr(a) for a in args)})" if args else name


def _value(text: str) -> float | str:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
