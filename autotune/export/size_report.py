"""Sizes of an exported model's parts. In: its image and interface. Out: a table as text.

The stack of a kernel is read from its code, where the function makes room: compilers tell it in a
section that LLVM writes only when told through an option of the whole process.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from autotune.codegen.base import CONTROL
from autotune.codegen.elf.objects import EXECUTE, UNDEFINED, WRITE, read_elf
from autotune.codegen.wasm.leb import LebReader
from autotune.codegen.wasm.module import PAGE_BYTES
from autotune.codegen.wasm.objects import CODE, MAGIC, MEMORIES
from autotune.export.interface import Frame
from autotune.runtime.image import ENTRY_SYMBOL, ModelImage
from autotune.runtime.open_image import OpenImage

_SCANNED_BYTES = 96
"""How far into a function its stack may be made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelSize:
    """A unique kernel: `calls` of it in the model. `stack_bytes`: -1 where it cannot be told."""

    symbol: str
    calls: int
    code_bytes: int
    stack_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportSizes:
    """Bytes of the parts of a model."""

    code: int
    constants: int
    state: int
    weights: int
    arena: int
    kernels: tuple[KernelSize, ...]

    def text(self) -> str:
        rows = [
            f"{'code':<32}{self.code:>12}",
            f"{'constants of the code':<32}{self.constants:>12}",
            f"{'written by the code':<32}{self.state:>12}",
            f"{'weights':<32}{self.weights:>12}",
            f"{'memory of an instance':<32}{self.arena:>12}",
            "",
            f"{'kernel':<40}{'calls':>6}{'code':>10}{'stack':>10}",
        ]
        for kernel in self.kernels:
            stack = "?" if kernel.stack_bytes < 0 else str(kernel.stack_bytes)
            rows.append(f"{kernel.symbol:<40}{kernel.calls:>6}{kernel.code_bytes:>10}{stack:>10}")
        return "\n".join(["bytes", *rows, ""])


def sizes_of(image: ModelImage, face: Frame) -> ExportSizes:
    """Counted in the kernels' objects; what links them adds one or two pages."""
    return _counted(image.objects, Counter(k.symbol for k in image.kernels), face)


def open_sizes_of(image: OpenImage, face: Frame) -> ExportSizes:
    """The same; calls of a kernel are those that may take it, memory is that without sizes."""
    called = (name for name in image.table.drivers if name not in CONTROL)
    drivers = Counter(name.removesuffix("_run") for name in called)
    return _counted(image.objects, drivers, face)


def source_sizes(image: ModelImage | OpenImage, face: Frame) -> str:
    """Those of a model in C, as text: code and stack are what a compiler makes of it."""
    rows = {"weights": face.weight_bytes, "memory of an instance": face.memory_bytes}
    told = "code and stack are your compiler's: cc -c -Os -fstack-usage model.c && size model.o"
    return _table(rows, image, told)


def module_sizes(image: ModelImage | OpenImage, module: bytes, weights: int) -> str:
    """Those of a WebAssembly module, as text; its memory grows for open sizes."""
    reader, code, pages = LebReader(module, len(MAGIC)), 0, 0
    while reader:
        kind, section = reader.byte(), LebReader(reader.block())
        if kind == CODE:
            code = len(section.data)
        elif kind == MEMORIES:
            _count, _limits, pages = section.number(), section.byte(), section.number()
    rows = {"code": code, "weights": weights, "memory, all in it": pages * PAGE_BYTES}
    return _table(rows, image)


def _table(rows: Mapping[str, int], image: ModelImage | OpenImage, told: str = "") -> str:
    lines = ["bytes", *(f"{name:<32}{nbytes:>12}" for name, nbytes in rows.items())]
    if isinstance(image, ModelImage):
        calls = Counter(kernel.symbol for kernel in image.kernels)
        lines += ["", f"{'kernel':<40}{'calls':>6}"]
        lines += [f"{name:<40}{count:>6}" for name, count in calls.items()]
    return "\n".join([*lines, *(["", told] if told else []), ""])


def _counted(objects: Iterable[bytes], calls: Mapping[str, int], face: Frame) -> ExportSizes:
    totals = {"code": 0, "constants": 0, "state": 0}
    kernels = []
    for code in objects:
        item = read_elf(code)
        own = 0
        for section in item.sections.values():
            kind = (
                "code" if section.flags & EXECUTE
                else "state" if section.flags & WRITE
                else "constants"
            )  # fmt: skip
            totals[kind] += section.size
            own += section.size if kind == "code" else 0
        for symbol in item.symbols:
            if symbol.section == UNDEFINED or symbol.name not in (*calls, ENTRY_SYMBOL):
                continue
            start = item.sections[symbol.section].data[symbol.value :][:_SCANNED_BYTES]
            kernels.append(
                KernelSize(
                    symbol=symbol.name,
                    calls=calls.get(symbol.name, 1),
                    code_bytes=own,
                    stack_bytes=stack_bytes(item.machine, start),
                )
            )
    return ExportSizes(
        code=totals["code"],
        constants=totals["constants"],
        state=totals["state"],
        weights=face.weight_bytes,
        arena=face.memory_bytes,
        kernels=tuple(sorted(kernels, key=lambda k: -k.code_bytes)),
    )


def stack_bytes(machine: str, code: bytes) -> int:
    """Bytes of stack that a function takes by the instructions it begins with."""
    reader = {"x86_64": _x86_stack, "aarch64": _arm64_stack}.get(machine)
    return reader(code) if reader else -1


def _x86_stack(code: bytes) -> int:
    """Pushes, `sub rsp, n`, and what `and rsp, -n` may add."""
    at = total = 0
    while at < len(code):
        if 0x50 <= code[at] <= 0x57:
            total, at = total + 8, at + 1
        elif code[at] == 0x41 and 0x50 <= code[at + 1 : at + 2][0] <= 0x57:
            total, at = total + 8, at + 2
        elif code[at : at + 3] == b"\x48\x89\xe5":  # mov rbp, rsp
            at += 3
        elif code[at : at + 3] == b"\x48\x83\xe4":  # and rsp, -n
            total, at = total + 256 - code[at + 3], at + 4
        elif code[at : at + 3] == b"\x48\x83\xec":  # sub rsp, n
            return total + code[at + 3] + 8
        elif code[at : at + 3] == b"\x48\x81\xec":
            return total + int.from_bytes(code[at + 3 : at + 7], "little") + 8
        else:
            break
    return total + 8


def _arm64_stack(code: bytes) -> int:
    """Registers stored before the stack pointer moves, and `sub sp, sp, n`."""
    total = 0
    for at in range(0, len(code) - 3, 4):
        word = int.from_bytes(code[at : at + 4], "little")
        if word & 0xFF8003FF == 0xD10003FF:  # sub sp, sp, n{, lsl 12}
            total += (word >> 10 & 0xFFF) << (12 if word >> 22 & 1 else 0)
        elif word & 0xFFC003E0 in (0xA98003E0, 0x6D8003E0):  # stp x, x / d, d, [sp, -n]!
            total += (128 - (word >> 15 & 0x7F)) * 8
        elif word & 0xFFE00FE0 in (0xF8000FE0, 0xFC000FE0):  # str x / d, [sp, -n]!
            total += 512 - (word >> 12 & 0x1FF)
        elif word & 0xFC000000 in (0x94000000, 0x14000000):
            break
    return total
