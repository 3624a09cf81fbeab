"""Machine: a target, what its device measured, and the speeds that no profile holds.

In: a target, a profile where there is one, and the shipped tables of speeds. Out: one frozen
value, which priors, passes, layouts, floors and rooflines read.
"""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import dataclass, fields, replace

import numpy as np
import numpy.typing as npt

from autotune.machine.curves import effective_sizes, value_at, values_at
from autotune.machine.facts import TILE_BYTES, Arithmetic, MachineFacts
from autotune.machine.measured import (
    MEMORY_STREAM_RATIO,
    hidden_streams,
    measured_speeds,
    on_machine,
)
from autotune.machine.nominal import nominal_facts, nominal_profile
from autotune.machine.profile import DeviceProfile
from autotune.machine.speeds import (
    CpuSpeeds,
    GpuSpeeds,
    TileCoreSpeeds,
    of_width,
    shipped_narrow_speeds,
    shipped_speeds,
    shipped_tile_speeds,
)
from autotune.target import Target

Column = npt.NDArray[np.float64]
"""One number per config."""
TILE_CORES = frozenset(("+amx-tile", "+avx512fp16"))
"""Features of cores with matrix tiles, be these refused by the system."""
WIDENED_BF16_PRODUCTS = 0.4
"""Products of bfloat16 per lane and multiply-add of float32 where operands are widened first: two
multiply-adds, and four instructions that put their operands in place (assumed)."""
PAIRED_BYTE_PRODUCTS = 0.7
"""Products of bytes per lane and multiply-add of float32 where bytes are widened and summed in
pairs of 16 bits (x86-64 without VNNI; llvm-mca: 0.67 with AVX2, 0.94 with AVX-512)."""
KEPT_BYTE_PRODUCTS = 0.75
"""Share of these products, as measured by themselves, that is left where operands are widened
beside them (Zen 4 with AVX2: 0.83; llvm-mca's Haswell: 0.67)."""
SINGLE_BYTE_PRODUCTS = 0.5
"""The same where each is widened and multiplied by itself (llvm-mca: Cortex-A72)."""
SIGNED_DOT_SHARE = 0.27
"""Products of uint8 by int8 over those of int8 alone by the instruction that has only these: what
was taken from the former is added again (llvm-mca: Neoverse N1, Apple M1)."""
BYTE_DOTS = frozenset(("+avx512vnni", "+avxvnni", "+i8mm"))
"""Features with an instruction for products of uint8 by int8."""
SMALL_MATRICES = {"matrix_bf16": "bf16", "matrix_int8": "int8"}
"""Algorithms by products of small matrices in vectors -> those by dot products of the same
type."""
MATRIX_OF_DOT = 2.0
"""Products of the former over those of the latter (specified: Arm, bfmmla and smmla)."""


WASM_TABLE = "wasm32"
"""The table of cores that run WebAssembly."""
PAIRED_BYTES = "pmaddwd"
"""What multiplies widened bytes."""
INSTRUCTIONS = {
    "bf16": ("dpbf16ps", "bfdot"), "int8": ("vpdpbusd", "usdot", "sdot", PAIRED_BYTES),
    "amx_bf16": ("tdpbf16ps",), "amx_int8": ("tdpbusd",),
    "matrix_bf16": ("bfmmla",), "matrix_int8": ("smmla",),
}  # fmt: skip
"""Algorithm -> what multiplies for it, the fastest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A device as predictions see it: the only source of speeds."""

    target: Target
    """What code is generated for: widths, registers, sizes of caches, threads."""
    profile: DeviceProfile
    """What the device measured about itself; nominal speeds where nothing was measured."""
    cpu: CpuSpeeds
    gpu: GpuSpeeds
    _caches: Target
    """The target with the machine's caches: only their sizes are read."""

    @staticmethod
    def of(target: Target, profile: DeviceProfile | None = None) -> Machine:
        """The machine of a target. Without a profile, of nominal speeds: these order configs as a
        profile does, but their seconds are those of no device."""
        return _machine(target, profile)

    def peak_flops(self, algorithm: str) -> float:
        """Float operations per second of one core at the peak, by an algorithm's precision."""
        return self.profile.peak_flops * self.products_per_lane(algorithm)

    def products_per_lane(self, algorithm: str) -> float:
        """An algorithm's products at the peak over multiply-adds of float32, by the instructions
        that the target's features have; 0 where these are none."""
        features = set(self.target.features.split(","))
        speeds = self.cpu if TILE_CORES.isdisjoint(features) else shipped_tile_speeds()
        if algorithm == "bf16" and not self.target.multiplies_bfloat16:
            return WIDENED_BF16_PRODUCTS
        measured = self._measured_products(algorithm)
        if algorithm == "int8" and measured is not None and self._pairs_bytes(features):
            return KEPT_BYTE_PRODUCTS * measured
        share = self._byte_share(features) if algorithm == "int8" else 1.0
        if measured is not None:
            return share * measured
        if algorithm in SMALL_MATRICES:
            return MATRIX_OF_DOT * self.products_per_lane(SMALL_MATRICES[algorithm])
        name = f"{algorithm}_products_per_lane"
        known = name in {f.name for f in fields(TileCoreSpeeds)}
        return share * float(getattr(speeds, name, 0.0 if known else 1.0))

    def _byte_share(self, features: set[str]) -> float:
        """Products of bytes at the peak over those of a core with an instruction for them."""
        if self.target.kind != "cpu" or not BYTE_DOTS.isdisjoint(features):
            return 1.0
        if "+dotprod" in features:
            return SIGNED_DOT_SHARE
        paired = self._pairs_bytes(features)
        return (PAIRED_BYTE_PRODUCTS if paired else SINGLE_BYTE_PRODUCTS) / (
            self.cpu.int8_products_per_lane
        )

    def _pairs_bytes(self, features: set[str]) -> bool:
        """Whether bytes are widened and summed in pairs: there is nothing better."""
        return BYTE_DOTS.isdisjoint(features) and self.target.triple.startswith("x86_64")

    def _measured_products(self, algorithm: str) -> float | None:
        """What its instruction reached here; None where that was not measured."""
        facts, named = self.profile.facts, INSTRUCTIONS.get(algorithm, ())
        widths = (self.target.vector_bytes, TILE_BYTES)
        rows = [
            row.multiply_adds_per_s
            for row in (facts.arithmetic if facts is not None else ())
            if row.instruction in named and row.vector_bytes in widths
        ]
        return 2 * max(rows) / self.profile.peak_flops if rows else None

    # ------------------------------------------------- what was measured, or else the tables say

    @property
    def facts(self) -> MachineFacts:
        """What micro-benchmarks found on this machine; of a profile without them, what it and the
        tables of configs/machines say."""
        return self.profile.facts or nominal_facts(self.target, self.profile, self.cpu)

    @property
    def l1_bytes(self) -> int:
        """Bytes of the innermost cache, as the machine's system tells of it, or else the
        target."""
        return self._caches.l1_bytes

    @property
    def l2_bytes(self) -> int:
        """The same of a core's second cache."""
        return self._caches.l2_bytes

    @property
    def l3_bytes(self) -> int:
        """The same of the last one, which cores share; 0 where there is none."""
        return self._caches.l3_bytes

    def cache_bytes(self, level: int) -> int:
        """Bytes of cache 1 to 3 that are really there for one's own data, 0 where there is no such
        cache: by the measured curve, or else the share that the tables give."""
        facts, believed = self.profile.facts, (self.l1_bytes, self.l2_bytes, self.l3_bytes)
        if facts is not None and facts.load_curve:
            return effective_sizes(facts.load_curve, believed, facts.latency_curve)[level - 1]
        shares = (1.0, self.cpu.own_share_of_l2, self.cpu.own_share_of_l3)
        return int(believed[level - 1] * shares[level - 1])

    def stream_s(
        self, nbytes: Column | float, footprint: Column | float, cores: int = 1
    ) -> Column:
        """Seconds until so many bytes have been loaded in order, by one core or shared by several,
        out of a footprint of all of them that is gone through over and over."""
        facts = self.facts
        alone = values_at(facts.load_curve, np.asarray(footprint) / cores) * cores
        if cores == 1 or not facts.load_curve_all:
            return np.asarray(nbytes / alone)
        # Private caches serve every core as if it were alone; behind them all share what there is.
        shared = values_at(facts.load_curve_all, footprint)
        private = facts.load_curve_all[0][0]
        return np.asarray(
            nbytes / np.where(np.asarray(footprint) < private, alone, np.minimum(alone, shared))
        )

    def among(self, footprint: float) -> Machine:
        """The machine as kernels find it in a model that touches `footprint` bytes in a run:
        operands that were used a run ago come as fast as data of that footprint that are gone
        through over and over, of which other data may take a share of the cache. The machine
        itself where no curve was measured."""
        facts, speed = self.profile.facts, self._arriving(footprint)
        if facts is None or speed is None:
            return self
        hidden = hidden_streams(facts, footprint)
        return replace(self, cpu=replace(self.cpu, memory_stream_bytes_per_cycle=speed, **hidden))

    def first_stream_bytes_per_cycle(self, nbytes: float) -> float:
        """Bytes a cycle, of all cores, at which operands of so many bytes come that were used a
        run ago: as all of the model's do, but more than these touch together fit no cache
        sooner."""
        own = self._arriving(nbytes)
        speed = self.cpu.memory_stream_bytes_per_cycle
        return speed if own is None else min(speed, own)

    def _arriving(self, footprint: float) -> float | None:
        """Bytes a cycle of a footprint that is gone through over and over, at most those of the
        last cache; None where no curve was measured."""
        facts = self.profile.facts
        if facts is None or not facts.load_curve or self.target.kind != "cpu":
            return None
        threads, rate = self.target.threads, self.profile.peak_flops / (2 * self.target.lanes())
        curve = facts.load_curve_all if threads > 1 else ()
        curve = curve or facts.load_curve
        own = shipped_speeds()[0].own_share_of_l3  # of a cache that is really there
        gain = value_at(curve, footprint / own) / curve[-1][1]
        memory = MEMORY_STREAM_RATIO * facts.load_curve[-1][1] / rate
        return min(gain * memory, max(memory, threads * self.cpu.l3_stream_bytes_per_cycle))

    def latency_s(self, footprint: Column | float) -> Column | None:
        """Seconds of a load that waits for the one before, anywhere in a footprint on huge pages.
        None where it was not measured."""
        curve = self.facts.latency_curve
        return values_at(curve, footprint) if curve else None

    def arithmetic(self, kind: str, vector_bytes: int = 0) -> Arithmetic | None:
        """The fastest multiply-add of a kind of operand (at a width); None where there is no
        instruction for it."""
        rows = [
            r for r in self.facts.arithmetic
            if r.kind == kind and vector_bytes in (0, r.vector_bytes)
        ]  # fmt: skip
        return max(rows, key=lambda r: r.multiply_adds_per_s, default=None)

    def foresees(self, footprint: float) -> bool:
        """Whether lines in order come out of a footprint sooner than prefetch instructions get
        them: was measured, and is so."""
        rows = self.facts.in_order
        if not rows:
            return False
        row = min(rows, key=lambda r: abs(np.log(r.footprint / footprint)))
        alone_s = float(self.stream_s(self.cpu.line_bytes, row.footprint))
        return alone_s < row.prefetched_s and row.near_s < row.prefetched_s


@functools.lru_cache(maxsize=64)
def _machine(target: Target, profile: DeviceProfile | None) -> Machine:
    """Asked for once a candidate."""
    cpu, gpu = shipped_speeds()
    own = shipped_narrow_speeds(target.cpu) if target.takes_lanes else None
    own = shipped_narrow_speeds(WASM_TABLE) if target.is_wasm else own
    if own is not None:
        cpu = dataclasses.replace(cpu, **of_width(own, max(1, target.sve_granules)))
    profile = profile or nominal_profile(target, cpu)
    cpu = measured_speeds(target, profile, cpu) if target.kind == "cpu" else cpu
    told = profile.facts.caches if profile.facts is not None else ()
    here = on_machine(target, told)
    return Machine(target=target, profile=profile, cpu=cpu, gpu=gpu, _caches=here)
