"""Kernels' vectors on the stack lie in one cache line each, wherever the caller's stack begins."""

from __future__ import annotations

import dataclasses

import pytest

from autotune.codegen.base import EntryCall
from autotune.codegen.llvm.backend import assembly_text
from autotune.codegen.llvm.entry import entry_text, run_text
from autotune.target import Target, load_target

CALL = EntryCall(symbol="kernel", args=((0, 0), (1, 0), (2, 0)))


def assembly(target: Target) -> dict[str, str]:
    """What calls a kernel, by whether it is timed alone or is a model's."""
    declared = "declare void @kernel(ptr, ptr, ptr, i64, i64, i64)\n"
    alone = entry_text((), target, "unused") + "\n" + declared + run_text("kernel", 2, target)
    whole = entry_text((CALL,), target, "model")
    return {"alone": assembly_text(alone, target), "whole": assembly_text(whole, target)}


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(
    ("name", "vector", "aligned"),
    [("x86-64-v4", 64, ["$-64,"]), ("x86-64-v3", 32, ["$-32,"]), ("x86-64-v3", 16, [])],
)
def test_who_calls_a_kernel_aligns_the_stack_to_its_vectors(
    name: str, vector: int, aligned: list[str], threads: int
) -> None:
    target = dataclasses.replace(load_target(name), threads=threads, vector_bytes=vector)
    for text in assembly(target).values():
        lines = (line.split() for line in text.splitlines())
        assert sorted({w[1] for w in lines if w[:1] == ["andq"] and "%rsp" in w}) == aligned
