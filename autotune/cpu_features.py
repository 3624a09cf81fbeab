"""Features of this machine's processor, from the operating system, by LLVM's names.

In: features that code was compiled with. Out: those that are missing here. Needs no LLVM: machines
that only run models have none.
"""

from __future__ import annotations

import ctypes
import platform
import re
from collections.abc import Iterable
from pathlib import Path

CPU_INFO = Path("/proc/cpuinfo")

X86_NAMES = {
    "64bit": "lm",
    **dict.fromkeys(("ccmp", "cf", "egpr", "ndd", "nf", "ppx", "push2pop2", "zu"), "apx"),
    **{f"amx-{kind}": f"amx_{kind}" for kind in ("bf16", "complex", "fp16", "int8", "tile")},
    "avx512bf16": "avx512_bf16",
    "avx512bitalg": "avx512_bitalg",
    "avx512fp16": "avx512_fp16",
    "avx512vbmi2": "avx512_vbmi2",
    "avx512vnni": "avx512_vnni",
    "avx512vp2intersect": "avx512_vp2intersect",
    "avx512vpopcntdq": "avx512_vpopcntdq",
    "avxifma": "avx_ifma",
    "avxneconvert": "avx_ne_convert",
    "avxvnni": "avx_vnni",
    "avxvnniint8": "avx_vnni_int8",
    "bmi": "bmi1",
    "crc32": "sse4_2",
    "lzcnt": "abm",
    "pclmul": "pclmulqdq",
    "rdrnd": "rdrand",
    "sahf": "lahf_lm",
    "sha": "sha_ni",
    "sse3": "pni",
    "sse4.1": "sse4_1",
    "sse4.2": "sse4_2",
}
"""Linux's names of an x86 processor's features, where they differ from LLVM's."""

UNLISTED = frozenset(
    (
        *("amx-avx512", "amx-fp8", "amx-movrs", "amx-tf32", "avx10.1", "avx10.2", "avxvnniint16"),
        *("clzero", "enqcmd", "hreset", "invpcid", "kl", "movrs", "mwaitx", "pconfig", "pku"),
        *("prefetchi", "prfchw", "ptwrite", "raoint", "rdpru", "rdpid", "sgx", "shstk"),
        *("tsxldtrk", "uintr", "usermsr", "waitpkg", "wbnoinvd", "widekl"),
        *("xsave", "xsavec", "xsaveopt", "xsaves"),
    )
)
"""Features that Linux lists under changing names or not at all: instructions of systems, which our
code has none of, and those that come only with others that it does list."""

ARM_BITS = {
    "fp-armv8": (0, 0),
    "neon": (0, 1),
    "aes": (0, 3),
    "sha2": (0, 6),
    "crc": (0, 7),
    "lse": (0, 8),
    "fullfp16": (0, 10),
    "rdm": (0, 12),
    "jsconv": (0, 13),
    "complxnum": (0, 14),
    "rcpc": (0, 15),
    "dotprod": (0, 20),
    "sve": (0, 22),
    "fp16fml": (0, 23),
    "sve2": (1, 1),
    "i8mm": (1, 13),
    "bf16": (1, 14),
}
"""Features of 64-bit Arm: (word, bit) of AT_HWCAP and AT_HWCAP2 (arch/arm64, uapi/asm/hwcap.h)."""
ARM32_BITS = {"neon": (0, 12), "vfp3": (0, 13), "vfp4": (0, 16)}
"""The same of 32-bit Arm (arch/arm, uapi/asm/hwcap.h)."""
RISCV_BITS = {letter: (0, ord(letter) - ord("a")) for letter in "macfdv"}
"""The same of RISC-V: a bit for every extension of one letter."""
HARDWARE_BITS = {"aarch64": ARM_BITS, "arm": ARM32_BITS, "riscv64": RISCV_BITS}
_AT_HWCAP = (16, 26)
"""Keys of AT_HWCAP and AT_HWCAP2 in the auxiliary vector (Linux)."""


def missing(machine: str, features: Iterable[str]) -> list[str]:
    """Those of the features (LLVM's names, of a processor of the kind `machine`) that this machine
    lacks. What the system tells nothing of is taken to be there."""
    if machine == "x86_64":
        flags = _flags()
        asked = [] if not flags else [f for f in features if f not in UNLISTED]
        return [f for f in asked if X86_NAMES.get(f, f) not in flags]
    bits = HARDWARE_BITS.get(machine, {})
    words = _hardware_words() if bits else (0, 0)
    if not any(words):
        return []
    known = [(f, *bits[f]) for f in features if f in bits]
    return [feature for feature, word, bit in known if not words[word] >> bit & 1]


def _flags() -> frozenset[str]:
    """The flags of an x86 processor; none where the system has no such file."""
    try:
        text = CPU_INFO.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return frozenset()
    found = re.search(r"^flags\s*:(.*)$", text, re.MULTILINE)
    return frozenset(found[1].split()) if found else frozenset()


def _hardware_words() -> tuple[int, ...]:
    """What the kernel tells every process of its processor."""
    ask = getattr(ctypes.CDLL(None), "getauxval", None) if platform.system() == "Linux" else None
    if ask is None:
        return (0, 0)
    ask.restype, ask.argtypes = ctypes.c_ulong, (ctypes.c_ulong,)
    return tuple(int(ask(number)) for number in _AT_HWCAP)
