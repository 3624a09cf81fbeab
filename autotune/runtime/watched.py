"""Words of memory that a run depends on, beside its arguments. In: their addresses. Out: whether
they are what they were; or a run, where they are.

One native call looks at them and runs the model: a call of its own for either, from Python, takes
longer than a small model.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence

from autotune.codegen.base import Library
from autotune.target import host_target

WORD_BYTES = 4
SYMBOL = "watched"
_POINTER = ctypes.c_void_p
_WATCHED = ctypes.CFUNCTYPE(ctypes.c_int64, _POINTER, _POINTER, _POINTER)


class WatchedWords:
    """Words of memory, and what was in them. Safe to use from several threads."""

    __slots__ = ("_block", "enter", "pointer")

    def __init__(self, addresses: Sequence[int]) -> None:
        """Addresses of whole words, in memory that the caller keeps."""
        words = [w for at in addresses for w in (at, ctypes.c_uint32.from_address(at).value)]
        self._block = (ctypes.c_uint64 * (1 + len(words)))(len(addresses), *words)
        self.pointer = ctypes.addressof(self._block)
        self.enter = _WATCHED(watched_address())
        """Called with `pointer`, a model's entry and its pointers, it runs the model unless a word
        is another one now, and gives whether it did."""

    def changed(self) -> bool:
        """Whether a word is another one now."""
        return not self.enter(self.pointer, None, None)


def watched_address() -> int:
    """Address of the function behind `enter`, whose first argument may be a null pointer."""
    return _library().address(SYMBOL)


@functools.cache
def _library() -> Library:
    from autotune.codegen.llvm.backend import load_text  # models run without a compiler, too
    from autotune.codegen.llvm.watched import watched_text

    return load_text(watched_text(SYMBOL), host_target())
