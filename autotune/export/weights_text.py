"""Weights of an exported model as LLVM text: in the library, or in a file that is mapped.

In: an exported model. Out: lines. Weights are read ahead, so that a first run waits for none.
"""

from __future__ import annotations

from autotune.export.errors import Code
from autotune.export.exported import Exported, weights_symbol
from autotune.export.interface import Frame
from autotune.systems import apple_system

_READ, _PRIVATE = 1, 2
"""Arguments of mmap."""
_POPULATE_READ, _WILL_NEED = 22, 3
"""Arguments of madvise: Linux's that maps pages at once, and that of all systems."""
_PAGE_BYTES, _APPLE_PAGE_BYTES = 4096, 16384
_SEEK_END = 2
"""Argument of lseek."""
OFFSET_ZERO = {"i64": "i64 0", "i32": "i32 0, i64 0"}
"""mmap's last argument: with 32-bit pointers, zeros for an off_t of 32 bits and of 64, which lies
at an even place."""


def found_weights(model: Exported[Frame]) -> str:
    """What instances take weights from, after `find_weights`."""
    return "%map" if model.seal is not None else f"@{weights_symbol(model.face.prefix)}"


def find_weights(model: Exported[Frame]) -> list[str]:
    """Weights read ahead; those of a file in %map."""
    size, own = model.size, weights_symbol(model.face.prefix)
    if model.seal is None:
        return [
            f"  %where = ptrtoint ptr @{own} to {size}",
            f"  %page = and {size} %where, -{_page_bytes(model)}",
            f"  %first = inttoptr {size} %page to ptr",
            f"  %r = call i32 @madvise(ptr %first, {size} {model.face.weight_bytes}, "
            f"i32 {_ahead(model)})",
            "  br label %allocate",
        ]
    return [
        "  %reason = alloca i32",
        "  %map = call ptr @map_weights(ptr %file, ptr %reason)",
        "  %missing = icmp eq ptr %map, null",
        "  br i1 %missing, label %nothing, label %allocate",
        "nothing:",
        "  %why = load i32, ptr %reason",
        "  ret i32 %why",
    ]


def _page_bytes(model: Exported[Frame]) -> int:
    return _APPLE_PAGE_BYTES if apple_system(model.target.triple) else _PAGE_BYTES


def _ahead(model: Exported[Frame]) -> int:
    """The advice to read pages now."""
    return _WILL_NEED if apple_system(model.target.triple) else _POPULATE_READ


def unmapped(model: Exported[Frame], name: str) -> list[str]:
    """Give the file of weights back."""
    if model.seal is None:
        return []
    total = f"{model.size} {model.face.weight_bytes + len(model.seal)}"
    return [f"  %gone.{name} = call i32 @munmap(ptr %{name}, {total})"]


def map_weights(model: Exported[Frame]) -> list[str]:
    """map_weights(path, status): the file in memory, or null and why. Its size and its last bytes,
    which have a digest of the rest, must be those of this model."""
    size, seal = model.size, model.seal or b""
    total = model.face.weight_bytes + len(seal)
    shown = "".join(f"\\{b:02X}" for b in seal)
    return [
        '@mode = internal constant [3 x i8] c"rb\\00"',
        f'@seal = internal constant [{len(seal)} x i8] c"{shown}"',
        "define internal ptr @map_weights(ptr %path, ptr %status) nounwind {",
        f"  store i32 {Code.NO_WEIGHTS.value}, ptr %status",
        "  %nowhere = icmp eq ptr %path, null",
        "  br i1 %nowhere, label %none, label %open",
        "none:",
        "  ret ptr null",
        "open:",
        "  %file = call ptr @fopen(ptr %path, ptr @mode)",
        "  %absent = icmp eq ptr %file, null",
        "  br i1 %absent, label %none, label %measure",
        "measure:",
        f"  %sought = call i32 @fseek(ptr %file, {size} 0, i32 {_SEEK_END})",
        f"  %end = call {size} @ftell(ptr %file)",
        f"  %whole = icmp eq {size} %end, {total}",
        "  br i1 %whole, label %map, label %wrong",
        "wrong:",
        "  %closed = call i32 @fclose(ptr %file)",
        f"  store i32 {Code.BAD_WEIGHTS.value}, ptr %status",
        "  ret ptr null",
        "map:",
        "  %number = call i32 @fileno(ptr %file)",
        f"  %data = call ptr @mmap(ptr null, {size} {total}, i32 {_READ}, i32 {_PRIVATE}, "
        f"i32 %number, {OFFSET_ZERO[size]})",
        "  %shut = call i32 @fclose(ptr %file)",
        f"  %failed = icmp eq ptr %data, inttoptr ({size} -1 to ptr)",
        "  br i1 %failed, label %none, label %compare",
        "compare:",
        f"  %r = call i32 @madvise(ptr %data, {size} {total}, i32 {_ahead(model)})",
        f"  %last = getelementptr i8, ptr %data, i64 {model.face.weight_bytes}",
        f"  %differ = call i32 @memcmp(ptr %last, ptr @seal, {size} {len(seal)})",
        "  %same = icmp eq i32 %differ, 0",
        "  br i1 %same, label %found, label %other",
        "other:",
        *unmapped(model, "data"),
        f"  store i32 {Code.BAD_WEIGHTS.value}, ptr %status",
        "  ret ptr null",
        "found:",
        "  ret ptr %data",
        "}",
    ]
