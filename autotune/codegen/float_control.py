"""The floating-point control word that kernels run under. In: a target. Out: the word.

Arithmetic on denormal numbers takes some cores (Intel's) a microcode assist of some 150 cycles.
With `--accuracy normal` they are zeros, as operands (denormals-are-zero) and as results
(flush-to-zero); `strict` keeps them, as IEEE 754 has it. The rest is as a process begins, whatever
the caller's thread has set: rounding to nearest, no traps. Sources: Intel SDM 1, 10.2.3 (MXCSR);
Arm ARM, C5.2 (FPCR) and G8.2 (FPSCR).

RISC-V has no such mode: its cores compute with denormal numbers at full speed. NEON of 32-bit Arm
has no other: its vectors flush in `strict` too. Arm's second bit, FZ16, stays 0: CPU code keeps
16-bit floats in memory only, and conversions never flush them.
"""

from __future__ import annotations

from autotune.target import Target, machine_of

MXCSR_DEFAULT = 0x1F80
"""x86: all exceptions masked, rounding to nearest."""
MXCSR_FLUSH = 1 << 15 | 1 << 6
"""x86: flush-to-zero (FTZ) and denormals-are-zero (DAZ)."""
FPCR_FLUSH = 1 << 24
"""Arm: FZ, operands and results alike; FPCR of 64-bit cores, FPSCR of 32-bit ones."""
X86 = ("x86_64", "i386", "i686")


def mxcsr(target: Target) -> int:
    """x86's control and status word, no exception noted yet."""
    return MXCSR_DEFAULT | (MXCSR_FLUSH if target.flushes_denormals else 0)


def fpcr(target: Target) -> int:
    """Arm's control word."""
    return FPCR_FLUSH if target.flushes_denormals else 0


def architecture(target: Target) -> str:
    """x86, aarch64, arm, or "" for one without such a word."""
    machine = machine_of(target.triple)
    if machine in X86:
        return "x86"
    return machine if machine in ("aarch64", "arm") else ""
