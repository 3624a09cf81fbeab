"""Generated C without what compilers warn of. In: lines of a function's body. Out: fewer of them.

The code generator leaves assignments of a variable to itself, and variables that nothing reads
(elements of a register tile beyond an edge): its own compilers drop them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

_SELF = re.compile(r"\s*(\w+) = \(?\1\)?;")
_DECLARED = re.compile(r"\s*(?:const )?\w+ \*?(\w+)(?: = [^;]*)?;")
_ASSIGNED = re.compile(r"\s*(\w+) = .*;")
_NAME = re.compile(r"[A-Za-z_]\w*")


def tidied(lines: Sequence[str]) -> list[str]:
    """The lines that matter. What is assigned has no side effects, by the generator's grammar."""
    kept = [line for line in lines if not _SELF.fullmatch(line)]
    while True:
        unread = _unread(kept)
        if not unread:
            return kept
        kept = [line for line in kept if _written(line) not in unread]


def _written(line: str) -> str:
    """The variable that a line declares or assigns, and nothing else; "" for other lines."""
    found = _ASSIGNED.fullmatch(line) or _DECLARED.fullmatch(line)
    return found[1] if found else ""


def _unread(lines: Sequence[str]) -> frozenset[str]:
    """Names that lines only declare and assign."""
    uses: Counter[str] = Counter()
    written: set[str] = set()
    for line in lines:
        name = _written(line)
        uses.update(_NAME.findall(line))
        if name:
            written.add(name)
            uses[name] -= 1
    return frozenset(name for name in written if not uses[name])
