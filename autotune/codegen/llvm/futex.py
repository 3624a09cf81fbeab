"""Waiting and waking on Linux, as LLVM text: what a thread does when spinning no longer pays.

`sched_yield` is no substitute: the scheduler takes it for a whole time slice given away, some
milliseconds, as soon as anything else wants the core.
"""

from __future__ import annotations

from autotune.errors import BuildError
from autotune.target import Target

_NUMBERS = {"x86_64": 202, "aarch64": 98, "armv7": 240, "riscv64": 98}
_WAIT, _WAKE = 128, 129
"""Operations between threads of one process."""


def wait_line(word: str, value: str, target: Target) -> str:
    """Sleep while the 32-bit word has the value (an i32)."""
    arguments = f"{_number(target)}, ptr {word}, i32 {_WAIT}, i32 {value}, ptr null"
    return f"  call {long_type(target)} ({long_type(target)}, ...) @syscall({arguments})"


def wake_line(word: str, target: Target) -> str:
    """Wake all who sleep on the word."""
    arguments = f"{_number(target)}, ptr {word}, i32 {_WAKE}, i32 2147483647"
    return f"  call {long_type(target)} ({long_type(target)}, ...) @syscall({arguments})"


def pause_lines(target: Target) -> list[str]:
    """A hint inside a loop that spins."""
    return ["  call void @llvm.x86.sse2.pause()"] if _is_x86(target) else []


def declarations(target: Target) -> list[str]:
    pause = ["declare void @llvm.x86.sse2.pause()"] if _is_x86(target) else []
    return [f"declare {long_type(target)} @syscall({long_type(target)}, ...)", *pause]


def _is_x86(target: Target) -> bool:
    return target.triple.startswith(("x86_64", "i386", "i686"))


def long_type(target: Target) -> str:
    """C's long."""
    return "i32" if target.triple.startswith("armv7") else "i64"


def _number(target: Target) -> str:
    architecture, *rest = target.triple.split("-")
    if architecture not in _NUMBERS or "linux" not in rest:
        known = ", ".join(_NUMBERS)
        raise BuildError(
            f"kernels on several threads need Linux on one of {known}, got {target.triple}; "
            "use one thread"
        )
    return f"{long_type(target)} {_NUMBERS[architecture]}"
