"""Arguments of public functions, checked before any work begins.

In: a parameter's name and what was given for it. Out: the value, as the type that was asked for.
Everything raises an InputError of one line: what was expected, what was given. Standard library
only.
"""

from __future__ import annotations

import inspect
import math
import numbers
import operator
import os
import re
from collections.abc import Collection, Iterable, Mapping

from autotune.errors import ConfigError, InputError
from autotune.parse_int import LARGEST

LONGEST_S = 1e9
"""Seconds; more than any clock's wait may be."""
_SHOWN = 60
"""Characters of a value that a message shows."""
Failure = type[InputError]


def described(value: object) -> str:
    """A value for a message: short ones as they are, with their type; of others the type."""
    kind = type(value).__name__
    if value is None or isinstance(value, bool):
        return repr(value)
    if isinstance(value, type):
        return f"the class {value.__name__}"
    if not isinstance(value, str | int | float):
        return f"a value of type {kind}"
    try:
        text = repr(value)
    except ValueError:  # more digits than Python prints
        return f"a number of many digits ({kind})"
    return f"{shortened(text)} ({kind})"


def shortened(text: str, most: int = _SHOWN) -> str:
    """A text of at most so many characters, cut in the middle."""
    half = most // 2
    return text if len(text) <= most else f"{text[:half]}...{text[-half:]}"


def listed(names: Iterable[str], most: int = 12) -> str:
    """Names for a message: not more than people read."""
    every = [shortened(name) for name in names]
    more = f", ... ({len(every)} in all)" if len(every) > most else ""
    return (", ".join(every[:most]) or "none") + more


def suggestion(name: str, known: Iterable[str]) -> str:
    """What else may have been meant, as the end of a message; nothing where nothing is near."""
    import difflib  # for messages only

    lower = {k.lower(): k for k in known if k != name}
    near = difflib.get_close_matches(name.lower(), lower, 1)
    return f"; did you mean {shortened(repr(lower[near[0]]))}?" if near else ""


def fitting(
    function: str, signature: inspect.Signature, given: Collection[object], named: Iterable[str]
) -> None:
    """Arguments that a function has, each given once, and all that have no default."""
    known = signature.parameters
    for name in named:
        if name not in known:
            more = suggestion(name, known) or f"; it has {listed(known, len(known))}"
            raise ConfigError(f"{function} has no option {shortened(repr(name))}{more}")
    try:
        signature.bind(*given, **dict.fromkeys(named))
    except TypeError as error:
        raise ConfigError(f"{function}: {error}; options are given by name") from None


def whole(
    name: str, value: object, least: int = 0, most: int = LARGEST, failure: Failure = ConfigError
) -> int:
    """A whole number from `least` to `most`; numpy's integers too, but no bool."""
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        number = None
    if number is None or isinstance(value, bool):
        raise failure(f"{name} must be a whole number, got {described(value)}")
    if not least <= number <= most:
        limit = f"at least {least}" if number < least else f"at most {most}"
        shown = number if abs(number) < 1 << 128 else described(number)
        raise failure(f"{name} must be {limit}, got {shown}")
    return number


def seconds(name: str, value: object) -> float:
    """A time in seconds: more than 0, no infinity."""
    found = _real(name, value)
    if not 0 < found <= LONGEST_S:
        limit = "more than 0" if not found > LONGEST_S else f"at most {LONGEST_S:g}"
        raise ConfigError(f"{name} must be {limit} seconds, got {found:g}")
    return found


def duration(name: str, value: object) -> float:
    """Seconds, as a number or as a text: '90', '90s', '10m', '1h30m'. An error begins with the
    name, if there is one."""
    if not isinstance(value, str):
        return seconds(name, value)
    found = re.fullmatch(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s?)?", value.strip())
    parts = found.groups() if found else (None,) * 3
    total = sum(float(p or 0) * unit for p, unit in zip(parts, (3600, 60, 1), strict=True))
    if not 0 < total <= LONGEST_S:
        whose = f"{name}: " if name else ""
        raise ConfigError(f"{whose}expected a time like 90s, 10m or 1h30m, got {value!r:.80}")
    return total


def share(name: str, value: object) -> float:
    """A part of the whole: between 0 and 1, neither of them."""
    found = _real(name, value)
    if not 0 < found < 1:
        raise ConfigError(f"{name} is a share between 0 and 1, got {found:g}")
    return found


def factor(name: str, value: object) -> float:
    """A number that is 0 or more, no infinity."""
    found = _real(name, value)
    if not 0 <= found < math.inf:
        raise ConfigError(f"{name} must be a number from 0 on, got {found:g}")
    return found


def _real(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise ConfigError(f"{name} must be a number, got {described(value)}")
    try:
        return float(value)
    except OverflowError:
        return math.inf


def flag(name: str, value: object) -> bool:
    """True or False, and nothing that could be taken for it."""
    if not isinstance(value, bool):
        raise ConfigError(f"{name} must be True or False, got {described(value)}")
    return value


def text(name: str, value: object, what: str = "a text", failure: Failure = ConfigError) -> str:
    """A str; `what` it should say."""
    if not isinstance(value, str):
        raise failure(f"{name} must be {what}, got {described(value)}")
    return value


def one_of(
    name: str, value: object, choices: Collection[str], failure: Failure = ConfigError
) -> str:
    """One of some words."""
    found = text(name, value, " or ".join(map(repr, choices)), failure)
    if found not in choices:
        raise failure(f"{name} is {' or '.join(map(repr, choices))}, got {described(found)}")
    return found


def place(name: str, value: object, what: str = "a path", failure: Failure = ConfigError) -> str:
    """A path, given as a str or as an object that stands for one."""
    if not isinstance(value, str | os.PathLike):
        raise failure(f"{name} must be {what}, got {described(value)}")
    found = os.fspath(value)
    if not isinstance(found, str):
        raise failure(f"{name} must be {what} as text, got {described(found)}")
    if flaw := _flaw(found):
        raise failure(f"{name} must be {what}, and the path given {flaw}")
    return found


def _flaw(path: str) -> str:
    """Why a text can be no path here; nothing where it can be one."""
    if not path or "\0" in path:
        return "holds a zero character" if path else "is empty"
    try:
        os.fsencode(path)
    except UnicodeEncodeError:
        return "holds characters that no file's name has"
    return ""


def function(name: str, value: object) -> None:
    """Something to call."""
    if not callable(value):
        raise ConfigError(f"{name} must be a function, got {described(value)}")


def instance(name: str, value: object, kind: type, what: str) -> None:
    """An object of a class; `what` it should be, for people."""
    if not isinstance(value, kind):
        raise ConfigError(f"{name} must be {what}, got {described(value)}")


def offers(
    name: str, value: object, methods: Collection[str], what: str, failure: Failure = ConfigError
) -> None:
    """An object with some methods, as a protocol asks for them."""
    if isinstance(value, type) or not all(
        callable(getattr(value, method, None)) for method in methods
    ):
        raise failure(f"{name} must be {what}, got {described(value)}")


def by_name(
    name: str, value: object, what: str = "a dict by input name", failure: Failure = ConfigError
) -> dict[str, object]:
    """A mapping whose keys are names."""
    if not isinstance(value, Mapping):
        raise failure(f"{name} must be {what}, got {described(value)}")
    for key in value:
        if not isinstance(key, str):
            raise failure(f"{name} must be {what}, got the key {described(key)}")
    return dict(value)


def shapes(value: object) -> dict[str, tuple[int | str, ...]]:
    """Shapes by input name, extents or names of symbolic ones; None is none of them."""
    given = {} if value is None else by_name("shapes", value)
    return {name: _extents(f"shapes[{shortened(repr(name))}]", given[name]) for name in given}


def ranges(value: object) -> dict[str, tuple[int, int, int]]:
    """Least, most and step of a size by its symbol, as (least, most) or (least, most, step); None
    is none of them."""
    given = {} if value is None else by_name("ranges", value, "a dict by symbol")
    return {name: _range(f"ranges[{shortened(repr(name))}]", given[name]) for name in given}


def sizes(value: object) -> dict[str, tuple[int, ...]]:
    """Sizes by symbol, each a tuple of one or more; None is none of them."""
    given = {} if value is None else by_name("at", value, "a dict by symbol")
    return {name: _sizes(f"at[{shortened(repr(name))}]", given[name]) for name in given}


def _sizes(name: str, value: object) -> tuple[int, ...]:
    if not isinstance(value, tuple | list) or not value:
        raise ConfigError(f"{name} must be sizes like (224, 640), got {described(value)}")
    return tuple(whole(f"a size of {name}", size, 1) for size in value)


def _range(name: str, value: object) -> tuple[int, int, int]:
    if not isinstance(value, tuple | list) or len(value) not in (2, 3):
        raise ConfigError(f"{name} must be (least, most) or (least, most, step), like (64, 1024, "
                          f"32), got {described(value)}")  # fmt: skip
    least = whole(f"the least of {name}", value[0], 0)
    most = whole(f"the most of {name}", value[1], least)
    return least, most, whole(f"the step of {name}", value[2], 1) if len(value) == 3 else 1


def _extents(name: str, value: object) -> tuple[int | str, ...]:
    listed = isinstance(value, Iterable) and hasattr(value, "__getitem__")
    if not listed or isinstance(value, str | bytes | bytearray | Mapping | type):
        example = "(1, 3, 224, 224)"
        if isinstance(value, str) and re.fullmatch(r"[0-9]{1,9}(x[0-9]{1,9}){1,9}", value):
            example = f"({value.replace('x', ', ')})"
        raise ConfigError(
            f"{name} must be a tuple of whole numbers like {example}, got {described(value)}"
        )
    assert isinstance(value, Iterable)
    return tuple(
        extent
        if isinstance(extent, str) and extent.isidentifier()
        else whole(f"an extent of {name}", extent, -LARGEST)
        for extent in value
    )
