"""A thread's floating-point control word around a job, as LLVM text. In: a target. Out: lines.

`enter_lines` save the caller's word in %caller_control and set that of kernels, `leave_lines`
bring it back. No kernel is inlined, so none of its arithmetic moves across.
"""

from __future__ import annotations

from autotune.codegen.float_control import architecture, fpcr, mxcsr
from autotune.target import Target

_REGISTERS = {"aarch64": ("i64", "llvm.aarch64", "fpcr"), "arm": ("i32", "llvm.arm", "fpscr")}
"""Arm's word: its type, and LLVM's intrinsics that get and set it."""


def declarations(target: Target) -> list[str]:
    """The intrinsics that ENTER and LEAVE call."""
    found = architecture(target)
    if found == "x86":
        names = ("llvm.x86.sse.stmxcsr", "llvm.x86.sse.ldmxcsr")
        return [f"declare void @{name}(ptr)" for name in names]
    if not found:
        return []
    kind, prefix, register = _REGISTERS[found]
    return [
        f"declare {kind} @{prefix}.get.{register}()",
        f"declare void @{prefix}.set.{register}({kind})",
    ]


def enter_lines(target: Target) -> list[str]:
    """For a function's first block, since x86 takes the words from the stack."""
    found = architecture(target)
    if found == "x86":
        return [
            "  %caller_control = alloca i32",
            "  %control = alloca i32",
            "  call void @llvm.x86.sse.stmxcsr(ptr %caller_control)",
            f"  store i32 {mxcsr(target)}, ptr %control",
            "  call void @llvm.x86.sse.ldmxcsr(ptr %control)",
        ]
    if not found:
        return []
    kind, prefix, register = _REGISTERS[found]
    return [
        f"  %caller_control = call {kind} @{prefix}.get.{register}()",
        f"  call void @{prefix}.set.{register}({kind} {fpcr(target)})",
    ]


def leave_lines(target: Target) -> list[str]:
    """For every block that returns."""
    found = architecture(target)
    if found == "x86":
        return ["  call void @llvm.x86.sse.ldmxcsr(ptr %caller_control)"]
    if not found:
        return []
    kind, prefix, register = _REGISTERS[found]
    return [f"  call void @{prefix}.set.{register}({kind} %caller_control)"]
