"""Sums of products of bytes (vpdpbusd) in plain LLVM IR, for machines that have none.

In: LLVM IR of kernels. Out: the same, with functions of its own in place of the instruction: each
lane adds four products of a uint8 by an int8, as Intel's manual has it. All other code is run as
it is.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from autotune.codegen.llvm import backend
from autotune.target import Target

FEATURES = ("+avxvnni", "+avx512vnni")
_DECLARED = re.compile(
    r"^declare <(\d+) x i32> @llvm\.x86\.avx512\.vpdpbusd\.(\d+)\(.*\)$", re.MULTILINE
)


@contextmanager
def emulated_byte_dots() -> Iterator[list[str]]:
    """What the LLVM backend builds meanwhile needs no such instruction; gives the widths, in bits,
    that kernels use it with."""
    widths, compile_text = list[str](), backend.compile_text

    def compiled(text: str, target: Target) -> bytes:
        for lanes, bits in _DECLARED.findall(text):
            widths.append(bits)
            text += _definition(int(lanes), bits)
        text = _DECLARED.sub("", text).replace("@llvm.x86.avx512.vpdpbusd.", "@vpdpbusd.")
        return compile_text(text, without_dots(target))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(backend, "compile_text", compiled)
        yield widths


def without_dots(target: Target) -> Target:
    """The target without the instruction."""
    features = [f for f in target.features.split(",") if f not in FEATURES]
    return dataclasses.replace(target, features=",".join(features))


def _definition(lanes: int, bits: str) -> str:
    """The instruction's function, for vectors of so many lanes of 32 bits."""
    sums, items, wide = f"<{lanes} x i32>", f"<{4 * lanes} x i8>", f"<{4 * lanes} x i32>"
    lines = [
        f"define internal {sums} @vpdpbusd.{bits}({sums} %s, {items} %a, {items} %b) {{",
        f"  %x = zext {items} %a to {wide}",
        f"  %y = sext {items} %b to {wide}",
        f"  %p = mul {wide} %x, %y",
        f"  %t0 = add {sums} %s, zeroinitializer",
    ]
    for place in range(4):
        picked = ", ".join(f"i32 {4 * lane + place}" for lane in range(lanes))
        mask = f"<{lanes} x i32> <{picked}>"
        lines.append(f"  %q{place} = shufflevector {wide} %p, {wide} poison, {mask}")
        lines.append(f"  %t{place + 1} = add {sums} %t{place}, %q{place}")
    return "\n".join(["", *lines, f"  ret {sums} %t4", "}", ""])
