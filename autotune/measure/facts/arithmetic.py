"""Throughput and latency of a core's arithmetic, loads and stores in its innermost cache.

In: a target, whose features say which instructions there are. Out: rows of MachineFacts.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from autotune import tile_permission
from autotune.machine.facts import TILE_BYTES, Arithmetic
from autotune.measure.facts import texts
from autotune.measure.facts.timing import Clock, Loop, Loops, least_s, rounded
from autotune.measure.storage import aligned_bytes
from autotune.target import Target
from autotune.types import Array

WIDTHS = (16, 32, 64)
"""Bytes of vectors that are measured: those of SSE and NEON, AVX2, AVX-512."""
SPARE_REGISTERS = 4
"""Vector registers that are left to operands."""
MOST_CHAINS = 16
"""Chains of multiply-adds side by side, at most: no core has more in flight."""
SMALL = 1e-40
"""A denormal float32."""
_ROWS, _ROW_BYTES = 16, 64
"""Rows, and bytes of a row, of a tile register (Intel AMX)."""


@dataclass(frozen=True, slots=True)
class Instruction:
    """A multiply-add of vectors, `multiply_adds` scalar ones."""

    kind: str
    name: str
    vector_bytes: int
    multiply_adds: int
    result: str
    operand: str
    intrinsic: str
    adds_first: bool
    """Whether the sum is the first argument, not the last."""

    @property
    def label(self) -> str:
        return f"{self.kind}_{self.name}_{self.vector_bytes}"

    @property
    def kinds(self) -> tuple[str, str, str]:
        """Types of the result and of both operands."""
        return (self.result, self.operand, self.operand)

    @property
    def declared(self) -> str:
        return f"declare {self.result} @{self.intrinsic}({', '.join(self._arguments())})"

    def emit(self, new: str, old: str, a: str, b: str) -> Sequence[str]:
        """new = old + a * b."""
        values = (old, a, b) if self.adds_first else (a, b, old)
        given = ", ".join(f"{kind} {v}" for kind, v in zip(self._arguments(), values, strict=True))
        return [f"  {new} = call {self.result} @{self.intrinsic}({given})"]

    def _arguments(self) -> tuple[str, str, str]:
        if self.adds_first:
            return self.kinds
        return (self.operand, self.operand, self.result)


_PAIR_WORDS = {16: "sse2.pmadd.wd", 32: "avx2.pmadd.wd", 64: "avx512.pmaddw.d.512"}
"""Bytes of a vector -> the instruction that sums pairs of products of 16 bits."""


class PairedBytes(Instruction):
    """Products of bytes where no instruction has them: the even ones and the odd ones, as words of
    16 bits, two at a time. What widens them is not part of it. Both multiply the sum: what stays
    the same would leave the loop."""

    @property
    def declared(self) -> str:
        return f"declare {self.result} @{self.intrinsic}({self.operand}, {self.operand})"

    def emit(self, new: str, old: str, a: str, b: str) -> Sequence[str]:
        call = f"call {self.result} @{self.intrinsic}({self.operand} {new}.words, {self.operand}"
        return [
            f"  {new}.words = bitcast {self.result} {old} to {self.operand}",
            *(f"  {new}.{i} = {call} {v})" for i, v in enumerate((a, b))),
            f"  {new}.sum = add {self.result} {old}, {new}.0",
            f"  {new} = add {self.result} {new}.sum, {new}.1",
        ]


def widths_of(target: Target) -> tuple[int, ...]:
    """Vector widths that the target has, narrowest first."""
    return tuple(w for w in WIDTHS if w <= target.vector_bytes) or (target.vector_bytes,)


def instructions_of(target: Target) -> Iterator[Instruction]:
    """Every multiply-add of vectors that the target's features name."""
    has = {f[1:] for f in target.features.split(",") if f.startswith("+")}
    x86, arm = target.triple.startswith("x86_64"), target.triple.startswith(("aarch64", "arm64"))
    # Without the instruction a fused multiply-add would be a call into a library.
    fused = not x86 or bool(has & {"fma", "avx512f"})
    for width in widths_of(target) if fused else ():
        yield _fma("float32", "float", width // 4, width)
        if x86 or arm:
            yield _fma("float64", "double", width // 8, width)
        if (x86 and "avx512fp16" in has) or (arm and "fullfp16" in has):
            yield _fma("float16", "half", width // 2, width)
        if x86:
            yield from _x86_dots(has, width)
    if arm and "bf16" in has:
        yield _dot("bfloat16", "bfdot", 16, 8, "aarch64.neon.bfdot.v4f32.v8bf16")
        yield _dot("bfloat16", "bfmmla", 16, 16, "aarch64.neon.bfmmla")
    if arm and "dotprod" in has:
        yield _dot("int8", "sdot", 16, 16, "aarch64.neon.sdot.v4i32.v16i8")
    if arm and "i8mm" in has:
        yield _dot("int8", "smmla", 16, 32, "aarch64.neon.smmla.v4i32.v16i8")


def _x86_dots(has: set[str], width: int) -> Iterator[Instruction]:
    bits, long = 8 * width, width == 64
    vector = long or "avx512vl" in has
    if "avx512bf16" in has and vector:
        name = f"x86.avx512bf16.dpbf16ps.{bits}"
        yield _dot("bfloat16", "dpbf16ps", width, width // 2, name)
    if ("avx512vnni" in has and vector) or ("avxvnni" in has and not long):
        yield _dot("int8", "vpdpbusd", width, width, f"x86.avx512.vpdpbusd.{bits}")
    elif not long or "avx512bw" in has:
        sums, words = f"<{width // 4} x i32>", f"<{width // 2} x i16>"
        intrinsic = f"llvm.x86.{_PAIR_WORDS[width]}"
        yield PairedBytes("int8", "pmaddwd", width, width, sums, words, intrinsic, adds_first=True)


def _fma(kind: str, element: str, lanes: int, width: int) -> Instruction:
    short = {"float": "f32", "double": "f64", "half": "f16"}[element]
    vector = f"<{lanes} x {element}>"
    return Instruction(
        kind, "fma", width, lanes, vector, vector, f"llvm.fma.v{lanes}{short}", adds_first=False
    )


def _dot(kind: str, name: str, width: int, products: int, intrinsic: str) -> Instruction:
    """Sums of products of short operands in lanes of 32 bits; `products`: in all of them."""
    short = kind == "bfloat16"
    items, sums = (width // 2, "float") if short else (width, "i32")
    operand = f"<{items} x {'bfloat' if short else 'i8'}>"
    result = f"<{width // 4} x {sums}>"
    return Instruction(
        kind, name, width, products, result, operand, f"llvm.{intrinsic}", adds_first=True
    )


def chains_of(target: Target) -> int:
    """Independent sums: they hide the latency, and fit the registers."""
    return max(1, min(MOST_CHAINS, target.vector_registers - SPARE_REGISTERS))


class Registers:
    """Loops of multiply-adds, loads and stores, and what their times say."""

    def __init__(self, target: Target, clock: Clock) -> None:
        self._target, self._clock = target, clock
        self._found = tuple(instructions_of(target))
        self._widths = widths_of(target)
        self._lanes = target.lanes()
        self._chains = chains_of(target)
        self._held: list[Array] = []
        self._loops = Loops(self._texts(), target)
        self.round_s = least_s(self._all(), clock)

    def again(self) -> None:
        """Measure all once more: who shares the core's units at one time does not at another."""
        again_s = least_s(self._all(), self._clock)
        self.round_s = {name: min(s, again_s[name]) for name, s in self.round_s.items()}

    # ---------------------------------------------------------------------------- what was found

    def arithmetic(self) -> tuple[Arithmetic, ...]:
        rows = [self._row(found) for found in self._found]
        return (*rows, *TileProducts(self._target, self._clock).rows())

    def _row(self, found: Instruction) -> Arithmetic:
        each = self.round_s[f"many_{found.label}"] / (texts.UNROLL * self._chains)
        return Arithmetic(
            kind=found.kind,
            instruction=found.name,
            vector_bytes=found.vector_bytes,
            multiply_adds_per_s=rounded(found.multiply_adds / each),
            latency_s=rounded(self.round_s[f"one_{found.label}"] / texts.UNROLL),
        )

    def clock_hz(self) -> float:
        return rounded(texts.CLOCK_STEPS / self.round_s["clock"])

    def clocks(self) -> tuple[tuple[int, float], ...]:
        names = {w: f"clock_{w}" for w in self._widths}
        return tuple(
            (w, rounded(texts.CLOCK_STEPS / self.round_s[n]))
            for w, n in names.items()
            if n in self.round_s
        )

    def add_latency_s(self) -> float:
        return rounded(self.round_s["add"] / texts.UNROLL)

    def denormal_s(self) -> float | None:
        if "usual" not in self.round_s:
            return None
        extra = self.round_s["small"] - self.round_s["usual"]
        return rounded(max(0.0, extra) / (texts.UNROLL * self._chains))

    def loads(self) -> tuple[tuple[int, float], ...]:
        return tuple((w, self._moved(f"load_{w}")) for w in self._widths)

    def stores(self) -> tuple[tuple[int, float], ...]:
        return tuple((w, self._moved(f"store_{w}")) for w in self._widths)

    def _moved(self, name: str) -> float:
        return rounded(texts.BLOCK_VECTORS / self.round_s[name])

    def broadcasts_per_s(self) -> float:
        return rounded(texts.BROADCASTS / self.round_s["broadcast"])

    def gathers_per_s(self) -> float:
        return rounded(texts.GATHERS * self._lanes / self.round_s["gather"])

    # --------------------------------------------------------------------------- what is measured

    def _texts(self) -> Iterator[str]:
        for found in self._found:
            for name, chains in (("many", self._chains), ("one", 1)):
                yield texts.chains_text(
                    f"{name}_{found.label}", found.kinds, found.emit, chains,
                    found.declared,
                )  # fmt: skip
        vector = f"<{self._lanes} x float>"
        add = lambda new, old, a, b: [f"  {new} = fadd {vector} {old}, {a}"]  # noqa: E731, ARG005
        yield texts.chains_text("add", (vector, vector, vector), add, 1)
        if usual := self._usual():
            yield texts.chains_text(
                "scale", usual.kinds,
                lambda new, old, a, b: usual.emit(new, b, old, a), self._chains, usual.declared,
            )  # fmt: skip
            for width in self._widths:
                yield texts.clock_text(f"clock_{width}", width // 4)
        yield texts.clock_text("clock")
        for width in self._widths:
            for moves in ("load", "store"):
                yield texts.passes_text(f"{moves}_{width}", width, moves)
        yield texts.broadcasts_text("broadcast", self._lanes)
        yield texts.gathers_text("gather", self._lanes)

    def _usual(self) -> Instruction | None:
        """The widest multiply-add of float32."""
        return max(
            (f for f in self._found if f.kind == "float32"),
            key=lambda f: f.vector_bytes, default=None,
        )  # fmt: skip

    def _all(self) -> dict[str, Loop]:
        loops = {}
        for found in self._found:
            data = self._operands(found.kind)
            for name in (f"many_{found.label}", f"one_{found.label}"):
                loops[name] = self._loop(name, data)
        loops["add"] = self._loop("add", self._operands("float32"))
        if self._usual():
            for name, added in (("usual", 1.0), ("small", SMALL)):
                data = self._operands("float32")
                data[64:192].view(np.float32)[...] = added
                loops[name] = self._loop("scale", data)
            for width in self._widths:
                loops[f"clock_{width}"] = self._loop(f"clock_{width}", self._clock_data())
        loops["clock"] = self._loop("clock", self._clock_data())
        for width in self._widths:
            for moves in ("load", "store"):
                loops[f"{moves}_{width}"] = self._pass(f"{moves}_{width}", width)
        loops["broadcast"] = self._loop("broadcast", self._block(texts.BROADCAST_BYTES, 1))
        loops["gather"] = self._loop("gather", self._block(texts.GATHER_BYTES, 1))
        return loops

    def _loop(self, name: str, data: Array) -> Loop:
        return Loop(self._loops.call(name), data.ctypes.data)

    def _pass(self, name: str, width: int) -> Loop:
        """Over and over one block, which the innermost cache holds with ease."""
        call = self._loops.call(name, ctypes.c_int64, ctypes.c_int64)
        data = self._block(texts.BLOCK_VECTORS * width, 1)
        return Loop(lambda address, rounds: call(address, 1, rounds), data.ctypes.data)

    def _operands(self, kind: str) -> Array:
        """Slots with a half, a one, and what chains begin with: sums stay numbers."""
        data = self._block(texts.chains_bytes(self._chains), 0)
        halves: dict[str, Any] = {
            "float32": np.float32(0.5), "float64": np.float64(0.5), "float16": np.float16(0.5),
            "bfloat16": np.uint16(0x3F00),
        }  # fmt: skip
        ones: dict[str, Any] = {**{k: type(v)(1) for k, v in halves.items()}}
        ones["bfloat16"] = np.uint16(0x3F80)
        half, one = halves.get(kind, np.uint8(1)), ones.get(kind, np.uint8(1))
        data[:64].view(half.dtype)[...] = half
        data[64:128].view(one.dtype)[...] = one
        return data

    def _clock_data(self) -> Array:
        data = self._block(texts.CLOCK_BYTES, 0)
        data[:128].view(np.uint64)[...] = 0x9E3779B97F4A7C15
        data[192:256].view(np.float32)[...] = 0.5
        return data

    def _block(self, nbytes: int, fill: int) -> Array:
        data = aligned_bytes(nbytes, fill)
        self._held.append(data)
        return data


# --------------------------------------------------------------------------- matrix units: AMX

_TILES = {
    "amx-bf16": ("bfloat16", "tdpbf16ps", 2),
    "amx-fp16": ("float16", "tdpfp16ps", 2),
    "amx-int8": ("int8", "tdpbusd", 4),
}
"""By feature: what is multiplied, the instruction, products per 32-bit lane."""
_SUMS = 4
"""Tiles that hold sums; two each are left for either operand."""


class TileProducts:
    """A matrix unit's products of tiles: 16 rows of 64 bytes by as many."""

    def __init__(self, target: Target, clock: Clock) -> None:
        self._target, self._clock = target, clock

    def rows(self) -> Iterator[Arithmetic]:
        """Nothing where there is no such unit, or the system does not let this process have it."""
        has = {f[1:] for f in self._target.features.split(",") if f.startswith("+")}
        kinds = [(feature, *row) for feature, row in _TILES.items() if feature in has]
        if "amx-tile" not in has or not kinds or tile_permission.request():
            return
        loops = Loops((tile_text(f"{n}_{i}", i, c) for _, _, i, _ in kinds for n, c in _BOTH),
                      self._target)  # fmt: skip
        data = aligned_bytes(TILE_BYTES, 0)
        data[:64] = configuration()
        timed = {
            f"{n}_{i}": Loop(loops.call(f"{n}_{i}"), data.ctypes.data)
            for _, _, i, _ in kinds for n, _ in _BOTH
        }  # fmt: skip
        found = least_s(timed, self._clock)
        for _, kind, instruction, products in kinds:
            each = found[f"many_{instruction}"] / (texts.UNROLL * _SUMS)
            multiply_adds = _ROWS * _ROWS * _ROWS * products
            yield Arithmetic(
                kind=kind, instruction=instruction, vector_bytes=TILE_BYTES,
                multiply_adds_per_s=rounded(multiply_adds / each),
                latency_s=rounded(found[f"one_{instruction}"] / texts.UNROLL),
            )  # fmt: skip


_BOTH = (("many", _SUMS), ("one", 1))


def configuration() -> Array:
    """What `ldtilecfg` takes: palette 1, and every tile of 16 rows of 64 bytes."""
    data = np.zeros(64, np.uint8)
    data[0] = 1
    data[16:32].view(np.uint16)[...] = _ROW_BYTES
    data[48:56] = _ROWS
    return data


def tile_text(name: str, instruction: str, sums: int) -> str:
    """UNROLL products for each of `sums` tiles a round; operands in tiles 4 to 7 are zero. Tiles
    are configured before and released after."""
    zero = [f"  call void @llvm.x86.tilezero(i8 {t})" for t in range(8)]
    start = ["  call void @llvm.x86.ldtilecfg(ptr %data)", *zero]
    body = [
        f"  call void @llvm.x86.{instruction}(i8 {s}, i8 {4 + s % 2}, i8 {6 + s // 2})"
        for _ in range(texts.UNROLL) for s in range(sums)
    ]  # fmt: skip
    declared = [
        "declare void @llvm.x86.ldtilecfg(ptr)",
        "declare void @llvm.x86.tilerelease()",
        "declare void @llvm.x86.tilezero(i8)",
        f"declare void @llvm.x86.{instruction}(i8, i8, i8)",
    ]
    after = ["  call void @llvm.x86.tilerelease()"]
    return "\n".join([*declared, texts.function(name, [], start, body, after)])
