"""A thread's floating-point control word around a region, as C. In: a target. Out: lines.

The text is for whatever processor the compiler is for, which its macros tell. The asm statements
name memory, so that no load and no store, and hence nothing computed between them, moves across.
"""

from __future__ import annotations

from autotune.codegen.float_control import fpcr, mxcsr
from autotune.target import Target

ENTER = ("const uint64_t caller_control = get_control();", "set_control(KERNEL_CONTROL);")
"""Saves the caller's word and sets that of kernels."""
LEAVE = "set_control(caller_control);"


def control_functions(target: Target) -> list[str]:
    """What ENTER and LEAVE call; on other processors (RISC-V) it does nothing. Needs stdint.h."""
    words = (("__SSE__", mxcsr(target)), ("__aarch64__", fpcr(target)), ("__ARM_FP", fpcr(target)))
    asm = (
        ('"stmxcsr %0" : "=m"(word)', '"ldmxcsr %0" : : "m"(word)', "uint32_t"),
        ('"mrs %0, fpcr" : "=r"(word)', '"msr fpcr, %0" : : "r"(word)', "uint64_t"),
        ('"vmrs %0, fpscr" : "=r"(word)', '"vmsr fpscr, %0" : : "r"(word)', "uint32_t"),
    )
    lines: list[str] = []
    for (macro, value), (get, put, kind) in zip(words, asm, strict=True):
        lines += [
            f"{'#elif' if lines else '#if'} defined({macro})",
            f"static inline {kind} get_control(void) {{",
            f"    {kind} word;",
            f'    __asm__ volatile({get} : : "memory");',
            "    return word;",
            "}",
            f"static inline void set_control({kind} word) {{",
            f'    __asm__ volatile({put} : "memory");',
            "}",
            f"#define KERNEL_CONTROL {value}",
        ]
    return [
        *lines,
        "#else",
        "static inline uint32_t get_control(void) { return 0; }",
        "static inline void set_control(uint32_t word) { (void)word; }",
        "#define KERNEL_CONTROL 0",
        "#endif",
    ]
