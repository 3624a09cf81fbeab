"""Arm's products of small matrices (bfmmla, smmla, usmmla) as LLVM IR, for other processors.

In: LLVM IR of kernels. Out: the same, with functions that compute what the instructions are
specified to in their place, so that all other code is run as it is.
"""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from autotune.codegen.llvm import backend
from autotune.target import Target

FEATURES = ("+bf16", "+i8mm")
_NAME = re.compile(r"@llvm\.aarch64\.neon\.([a-z]+mmla)[\w.]*")
_DECLARED = re.compile(r"^declare .*@llvm\.aarch64\.neon\.([a-z]+mmla).*$", re.MULTILINE)
_SIDE = 2


def with_matrices(target: Target) -> Target:
    """A CPU of any machine with the vectors and the products of one that has Arm's."""
    kept = [f for f in target.features.split(",") if f and not f.startswith("+amx")]
    return dataclasses.replace(
        target, features=",".join([*kept, *FEATURES]), vector_bytes=16, vector_registers=32,
        name="matrices",
    )  # fmt: skip


def emulated(text: str) -> str:
    """LLVM IR without the instructions."""
    text = _DECLARED.sub(lambda m: _definition(m[1]), text)
    return _NAME.sub(lambda m: f"@emulated.{m[1]}", text)


def _definition(name: str) -> str:
    """A function: each of 2 x 2 sums adds the products of a row of either operand."""
    floats = name == "bfmmla"
    depth, item, sums = (4, "bfloat", "float") if floats else (8, "i8", "i32")
    operand, result = f"<{_SIDE * depth} x {item}>", f"<{_SIDE * _SIDE} x {sums}>"
    lines = [
        f"define internal {result} @emulated.{name}({result} %c, {operand} %a, {operand} %b) {{"
    ]
    value = "%c"
    for row in range(_SIDE):
        for column in range(_SIDE):
            at, total = _SIDE * row + column, f"%t{row}{column}"
            lines.append(f"  {total} = extractelement {result} %c, i64 {at}")
            for k in range(depth):
                label = f"{row}{column}{k}"
                lines += _widened(f"%x{label}", "a", operand, row * depth + k, name)
                lines += _widened(f"%y{label}", "b", operand, column * depth + k, name)
                add, mul = ("fadd", "fmul") if floats else ("add", "mul")
                lines.append(f"  %p{label} = {mul} {sums} %x{label}, %y{label}")
                lines.append(f"  %s{label} = {add} {sums} {total}, %p{label}")
                total = f"%s{label}"
            lines.append(f"  %r{at} = insertelement {result} {value}, {sums} {total}, i64 {at}")
            value = f"%r{at}"
    return "\n".join([*lines, f"  ret {result} {value}", "}"])


def _widened(name: str, operand: str, kind: str, place: int, instruction: str) -> list[str]:
    """An element of an operand as wide as the sums."""
    signs = {"bfmmla": "fpext bfloat", "smmla": "sext i8"}
    unsigned = instruction == "usmmla" and operand == "a"
    widen = "zext i8" if unsigned else signs.get(instruction, "sext i8")
    wide = "float" if instruction == "bfmmla" else "i32"
    return [
        f"  {name}.e = extractelement {kind} %{operand}, i64 {place}",
        f"  {name} = {widen} {name}.e to {wide}",
    ]


@contextmanager
def emulated_matrices() -> Iterator[Counter[str]]:
    """What the LLVM backend builds meanwhile needs no such instructions; gives how often each was
    written."""
    compile_text, counts = backend.compile_text, Counter[str]()

    def compiled(text: str, target: Target) -> bytes:
        counts.update(re.findall(r"call .*@llvm\.aarch64\.neon\.([a-z]+mmla)", text))
        features = ",".join(f for f in target.features.split(",") if f not in FEATURES)
        return compile_text(emulated(text), dataclasses.replace(target, features=features))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(backend, "compile_text", compiled)
        yield counts
