"""Identity of the processor. In: what the system says of it, and a target. Out: a Processor."""

from __future__ import annotations

import platform
from pathlib import Path

from autotune.machine.facts import Processor
from autotune.target import Target

CPUINFO = Path("/proc/cpuinfo")
MATTERING = (
    "avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512vl", "avx512vnni", "avx512bf16",
    "avx512fp16", "avxvnni", "avxvnniint8", "avx10.1", "avx10.2", "amx-tile", "amx-bf16",
    "amx-int8", "amx-fp16", "neon", "dotprod", "fullfp16", "bf16", "i8mm", "sve", "sve2", "sme",
    "v", "zvfh",
)  # fmt: skip
"""Instruction sets that kernels may be made of."""
_FIELDS = {
    "vendor": ("vendor_id", "CPU implementer"),
    "family": ("cpu family", "CPU architecture"),
    "model": ("model", "CPU part"),
    "stepping": ("stepping", "CPU revision"),
    "brand": ("model name", "Processor", "uarch"),
}
"""By x86's and Arm's words."""


def processor_of(target: Target, text: str | None = None) -> Processor:
    """The processor of this machine; `text`: of /proc/cpuinfo, if it is not to be read."""
    said = _first(_read() if text is None else text)
    found = {
        name: next((said[w] for w in words if w in said), "") for name, words in _FIELDS.items()
    }
    has = {f[1:] for f in target.features.split(",") if f.startswith("+")}
    return Processor(
        vendor=found["vendor"] or platform.machine() or "unknown",
        family=_number(found["family"]),
        model=_number(found["model"]),
        stepping=_number(found["stepping"]),
        brand=found["brand"],
        llvm=target.cpu,
        abilities=tuple(sorted(has.intersection(MATTERING))),
        said_hz=_megahertz(said.get("cpu MHz", "")),
    )


def _read() -> str:
    try:
        return CPUINFO.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _first(text: str) -> dict[str, str]:
    """What is said of the first processor that is listed."""
    out: dict[str, str] = {}
    for line in text.splitlines():
        name, colon, value = line.partition(":")
        if colon:
            out.setdefault(name.strip(), value.strip())
    return out


def _megahertz(text: str) -> float | None:
    try:
        return float(text) * 1e6 or None
    except ValueError:
        return None


def _number(text: str) -> int | None:
    try:
        return int(text, 0)
    except ValueError:
        return None
