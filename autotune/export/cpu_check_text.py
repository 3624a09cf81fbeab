"""Check of a processor for the features of an exported model's code, as LLVM text: made when an
instance is, so that the answer is an error and not the end of the process.

In: the target. Out: lines that define `fits_cpu`. x86-64 is asked by its own instructions, and for
the registers that the system saves; Arm by what Linux tells a process. What is asked for is what
compilers use by themselves; of RISC-V and of Apple's processors nothing is asked.
"""

from __future__ import annotations

from collections.abc import Iterable

from autotune.cpu_features import ARM32_BITS, ARM_BITS
from autotune.systems import apple_system
from autotune.target import Target, machine_of

_EAX, _EBX, _ECX, _EDX = range(4)
X86_BITS = {
    "sse3": (1, 0, _ECX, 0), "ssse3": (1, 0, _ECX, 9), "fma": (1, 0, _ECX, 12),
    "sse4.1": (1, 0, _ECX, 19), "sse4.2": (1, 0, _ECX, 20), "movbe": (1, 0, _ECX, 22),
    "popcnt": (1, 0, _ECX, 23), "avx": (1, 0, _ECX, 28), "f16c": (1, 0, _ECX, 29),
    "bmi": (7, 0, _EBX, 3), "avx2": (7, 0, _EBX, 5), "bmi2": (7, 0, _EBX, 8),
    "avx512f": (7, 0, _EBX, 16), "avx512dq": (7, 0, _EBX, 17), "avx512ifma": (7, 0, _EBX, 21),
    "avx512cd": (7, 0, _EBX, 28), "avx512bw": (7, 0, _EBX, 30), "avx512vl": (7, 0, _EBX, 31),
    "avx512vbmi": (7, 0, _ECX, 1), "avx512vbmi2": (7, 0, _ECX, 6), "gfni": (7, 0, _ECX, 8),
    "avx512vnni": (7, 0, _ECX, 11), "avx512bitalg": (7, 0, _ECX, 12),
    "avx512vpopcntdq": (7, 0, _ECX, 14), "amx-bf16": (7, 0, _EDX, 22),
    "avx512fp16": (7, 0, _EDX, 23), "amx-tile": (7, 0, _EDX, 24), "amx-int8": (7, 0, _EDX, 25),
    "avxvnni": (7, 1, _EAX, 4), "avx512bf16": (7, 1, _EAX, 5),
    "lzcnt": (0x80000001, 0, _ECX, 5),
}  # fmt: skip
"""LLVM's names: (leaf, part, register, bit) of cpuid (Intel SDM, volume 2A; AMD's lzcnt)."""
_SAVED = (("avx", 0x6), ("avx512f", 0xE6), ("amx-tile", 0x600E6))
"""Bits of XCR0: the registers that the system saves for each."""
_KNOWS_SAVED = (1, 0, _ECX, 27)
_PLAIN = '"target-cpu"="x86-64" "target-features"="+sse2"'
"""The check itself is code for any processor."""
_CPUID = (
    'call { i32, i32, i32, i32 } asm sideeffect "cpuid", '
    '"={ax},={bx},={cx},={dx},{ax},{cx},~{dirflag},~{fpsr},~{flags}"'
)
_XGETBV = (
    'call { i32, i32 } asm sideeffect "xgetbv", "={ax},={dx},{cx},~{dirflag},~{fpsr},~{flags}"'
)


def cpu_check_lines(target: Target) -> list[str]:
    """`i1 fits_cpu()`."""
    needed = [f[1:] for f in target.features.split(",") if f.startswith("+")]
    machine = machine_of(target.triple)
    if machine == "x86_64":
        return _x86_lines(needed)
    if machine in ("aarch64", "arm") and not apple_system(target.triple):
        return _arm_lines(needed, machine)
    return ["define internal i1 @fits_cpu() nounwind noinline {", "  ret i1 true", "}"]


def _x86_lines(needed: Iterable[str]) -> list[str]:
    asked = {X86_BITS[name] for name in needed if name in X86_BITS}
    saved = max((bits for name, bits in _SAVED if name in set(needed)), default=0)
    leaves: dict[tuple[int, int], dict[int, int]] = {}
    for leaf, part, register, bit in [*asked, *([_KNOWS_SAVED] if saved else [])]:
        masks = leaves.setdefault((leaf, part), {})
        masks[register] = masks.get(register, 0) | 1 << bit
    highest = max((leaf for leaf, _ in leaves if leaf < 1 << 31), default=0)
    lines = [
        f"define internal i1 @fits_cpu() nounwind noinline {_PLAIN} {{",
        f"  %most = {_CPUID}(i32 0, i32 0)",
        "  %last = extractvalue { i32, i32, i32, i32 } %most, 0",
        f"  %old = icmp ult i32 %last, {highest}",
        "  br i1 %old, label %no, label %leaf0",
        "no:",
        "  ret i1 false",
    ]
    for number, ((leaf, part), masks) in enumerate(sorted(leaves.items())):
        lines += [f"leaf{number}:", f"  %id{number} = {_CPUID}(i32 {_signed(leaf)}, i32 {part})"]
        fits = "true"
        for register, mask in masks.items():
            name, word = f"{number}.{register}", f"{{ i32, i32, i32, i32 }} %id{number}"
            lines += [
                f"  %word{name} = extractvalue {word}, {register}",
                f"  %has{name} = and i32 %word{name}, {_signed(mask)}",
                f"  %all{name} = icmp eq i32 %has{name}, {_signed(mask)}",
                f"  %fits{name} = and i1 {fits}, %all{name}",
            ]
            fits = f"%fits{name}"
        lines.append(f"  br i1 {fits}, label %leaf{number + 1}, label %no")
    lines.append(f"leaf{len(leaves)}:")
    if not saved:
        return [*lines, "  ret i1 true", "}"]
    return [
        *lines,
        f"  %xcr = {_XGETBV}(i32 0)",
        "  %low = extractvalue { i32, i32 } %xcr, 0",
        f"  %kept = and i32 %low, {saved}",
        f"  %whole = icmp eq i32 %kept, {saved}",
        "  ret i1 %whole",
        "}",
    ]


def _arm_lines(needed: Iterable[str], machine: str) -> list[str]:
    bits, size = (ARM_BITS, "i64") if machine == "aarch64" else (ARM32_BITS, "i32")
    masks = [0, 0]
    for word, bit in (bits[name] for name in needed if name in bits):
        masks[word] |= 1 << bit
    lines = [
        f"declare {size} @getauxval({size})",
        "define internal i1 @fits_cpu() nounwind noinline {",
    ]
    for number, (kind, mask) in enumerate(zip((16, 26), masks, strict=True)):
        lines += [
            f"  %word{number} = call {size} @getauxval({size} {kind})",
            f"  %has{number} = and {size} %word{number}, {mask}",
            f"  %all{number} = icmp eq {size} %has{number}, {mask}",
        ]
    return [
        *lines,
        f"  %either = or {size} %word0, %word1",
        f"  %silent = icmp eq {size} %either, 0",
        "  %both = and i1 %all0, %all1",
        "  %fits = or i1 %silent, %both",
        "  ret i1 %fits",
        "}",
    ]


def _signed(value: int) -> int:
    """LLVM's text has numbers of 32 bits with a sign."""
    return value - (1 << 32) if value >= 1 << 31 else value
