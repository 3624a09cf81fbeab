"""Targets: what code is generated for. In: a name, a TOML file or this machine. Out: a Target."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, Literal, cast, get_args

from autotune import arguments, caches, tile_permission
from autotune import exactness as kinds
from autotune.errors import ConfigError, TargetError
from autotune.exactness import Accuracy, Precision, possible, precision_named
from autotune.parse_int import whole
from autotune.registry import Registry

Kind = Literal["cpu", "cuda", "opencl", "c"]
KINDS = get_args(Kind)
GPU_KINDS = ("cuda", "opencl")
SOURCE = "source"
TILES = "+amx-tile"
"""LLVM's name for matrix tiles (Intel AMX)."""
BFLOAT16 = frozenset(("+avx512bf16", "+amx-bf16", "+bf16"))
"""LLVM's names for instructions that multiply bfloat16."""
SVE_GRANULE_BYTES = 16
"""Scalable vectors of Arm (SVE) are multiples of so many bytes."""
MAX_DEVICES = MAX_THREADS = 1024
"""Numbers of devices are below it; more threads would only wait for each other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A device as the compiler sees it. Sizes in bytes; caches are per core except l3."""

    name: str
    kind: Kind
    """cpu, cuda, opencl or c (C for a processor that LLVM is not asked for)."""
    triple: str
    cpu: str
    """LLVM's CPU name: whose pipeline code is laid out for. What it may use is in `features`."""
    features: str
    """LLVM feature string: '+avx2,+fma,-prefer-256-bit'. Of kind c: words of the like."""
    vector_bytes: int
    vector_registers: int
    cores: int
    l1_bytes: int
    l2_bytes: int
    l3_bytes: int
    l1_ways: int = 8
    """Lines that a set of the inner cache holds."""
    line_bytes: int = 64
    threads: int = 1
    """Threads a kernel runs on. Part of the key: records of other thread counts do not mix."""
    accuracy: Accuracy = "normal"
    """normal: algorithms whose error stays below 1e-3 of the largest value (Winograd, Strassen);
    they add what they take away again, so that a NaN or an infinity may spoil all outputs of its
    tile. strict: the sums as the model has them, in another order at most; what is no number
    reaches the outputs that read it and no others; denormal numbers, which CPUs take for zeros
    otherwise, are computed with. reproducible: as strict, and every config, number of threads and
    width of vectors gives the same bits: each sum has one order. Part of the key."""

    precision: Precision = "float32"
    """float32; bfloat16, float16, tf32: contractions may round their operands to it (tf32: leave
    out the last 13 bits) and sum in float32; or int8: the graph was put on bytes before it was cut
    into tasks. Part of the key."""

    arch: str = ""
    """GPUs: the instruction set, "sm_80". Of kind c: "source" where texts are asked for, which
    nothing here compiles."""
    warp: int = 1
    """Threads that run in step."""
    shared_bytes: int = 0
    """Shared memory that one block may use."""
    max_threads: int = 1
    """Threads of a block, at most."""
    registers: int = 0
    """32-bit registers of a multiprocessor; 0: not known, and no limit."""
    multiprocessors: int = 1
    device: int = 0
    """Which one of a machine's devices that can run the code, from 0. Not part of the key."""

    @property
    def is_gpu(self) -> bool:
        """Whether programs are bound to blocks and threads."""
        return self.kind in GPU_KINDS

    @property
    def is_source(self) -> bool:
        """Whether kernels are to be C, for a compiler of the user's."""
        return self.kind == "c" and self.arch == SOURCE

    @property
    def is_compact(self) -> bool:
        """Whether C is to be small rather than unrolled: a processor whose vectors are words."""
        return self.kind == "c" and self.lanes() == 1

    @property
    def is_wasm(self) -> bool:
        """Whether code is WebAssembly, which an engine runs."""
        return self.triple.startswith("wasm32")

    @property
    def transforms_weights(self) -> bool:
        """Whether algorithms may that make weights larger, with sums of their own."""
        return self.accuracy == "normal" and not self.is_compact

    @property
    def ptx(self) -> int:
        """The version of PTX that features ask for, 80 for 8.0; 0: not said."""
        return int(found[1]) if (found := re.search(r"\+ptx(\d+)", self.features)) else 0

    @property
    def plain(self) -> Target:
        """The same without what just this architecture ("sm_90a") has: its copy engine's boxes
        must begin at multiples of 16 bytes, kernels without them take what lies anywhere."""
        return dataclasses.replace(self, arch=self.arch.removesuffix("a"))

    @property
    def flushes_denormals(self) -> bool:
        """Whether kernels for CPUs take denormal numbers for zeros and give zeros for them."""
        return self.accuracy == "normal" and not self.is_gpu

    @property
    def has_tiles(self) -> bool:
        """Whether it multiplies matrix tiles, for which a process asks the system."""
        return TILES in self.features.split(",")

    @property
    def joins_attention(self) -> bool:
        """Whether there is a kernel for products with a softmax between them, as fast as these."""
        short = self.precision == "bfloat16" and self.multiplies_bfloat16
        return not (self.is_gpu or short or self.is_reproducible)  # its blocks rescale its sums

    @property
    def is_reproducible(self) -> bool:
        """Whether bits are the same whatever is tuned, and on how many threads."""
        return self.accuracy == "reproducible"

    @property
    def sum_lanes(self) -> int:
        """Partial sums that a reduction along a vector has in one of its vectors."""
        return kinds.REPRODUCIBLE_LANES if self.is_reproducible else self.lanes()

    @property
    def multiplies_bfloat16(self) -> bool:
        """Whether a CPU has instructions for products of bfloat16 that code is written for."""
        return not BFLOAT16.isdisjoint(self.features.split(","))

    @property
    def takes_lanes(self) -> bool:
        """Whether a multiply-add of vectors takes a lane of a register for a factor, and nothing
        from memory: Arm's 64-bit code."""
        return self.kind == "cpu" and self.triple.startswith(("aarch64", "arm64"))

    @property
    def sve_granules(self) -> int:
        """Vectors of 128 bits in one of Arm's scalable vectors, as wide as the target says; 0:
        there are none, or no wider ones than others."""
        wide = self.takes_lanes and "+sve" in self.features.split(",")
        return self.vector_bytes // SVE_GRANULE_BYTES if wide and self.vector_bytes > 16 else 0

    @property
    def lends_halos(self) -> bool:
        """Whether memory with zeros around a value is worth giving to others before and after: it
        is in a cache then, but in whose, if threads have one each?"""
        return not self.is_gpu and self.threads == 1

    @property
    def short_tensors(self) -> str:
        """Element type of tensors between kernels that compute in float32; empty: float32."""
        short = self.kind == "cuda" and self.precision in ("bfloat16", "float16")
        return self.precision if short else ""

    @property
    def family(self) -> str:
        """kind-arch-vector width: records of one family are worth trying on another member."""
        if self.is_gpu:
            return f"{self.kind}-{self.arch}" if self.arch else self.kind
        return f"{self.kind}-{self.triple.split('-')[0]}-v{self.vector_bytes * 8}"

    @property
    def key(self) -> str:
        """What records are filed under: family, CPU and thread count."""
        strict = "" if self.accuracy == "normal" else f"-{self.accuracy}"
        narrow = "" if self.precision == "float32" else f"-{self.precision}"
        device = f"{self.cpu}" if self.is_gpu else f"{self.cpu}-t{self.threads}"
        return f"{self.family}-{device}{strict}{narrow}"

    def within(self, device: Target) -> Target:
        """The same for a device of this kind, with its limits of blocks; CPUs have none."""
        if not self.is_gpu or device.kind != self.kind:
            return self
        limits = (
            "warp", "shared_bytes", "max_threads", "multiprocessors", "cores", "vector_bytes",
            "device",
        )  # fmt: skip
        return dataclasses.replace(self, **{name: getattr(device, name) for name in limits})

    def lanes(self, item_bytes: int = 4) -> int:
        """Elements of one vector register."""
        return max(1, self.vector_bytes // item_bytes)

    def with_accuracy(self, accuracy: str) -> Target:
        """Raises TargetError for anything but normal, strict and, where possible, reproducible."""
        arguments.one_of("accuracy", accuracy, kinds.ACCURACIES, TargetError)
        return possible(dataclasses.replace(self, accuracy=cast(Accuracy, accuracy)))

    def with_precision(self, precision: str) -> Target:
        """Raises TargetError for anything but float32, bfloat16 (also written bf16), int8 and, of
        tensor cores, float16 (f16) and tf32."""
        named = precision_named(precision)
        if named in ("float16", "tf32") and self.kind != "cuda":
            raise TargetError(
                f"{precision} is a precision of tensor cores, which {self.name} has not; take bf16"
            )
        return possible(dataclasses.replace(self, precision=named))

    def with_threads(self, threads: int) -> Target:
        return dataclasses.replace(self, threads=threads)

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Target:
        """Raises TypeError of fields that it has not, or that are of another type."""
        for name, value in dict(data).items():
            wanted, kind = (int, "an integer") if name in _SIZES else (str, "a string")
            if type(value) is not wanted:
                raise TypeError(f"{name} must be {kind}, got {value!r:.80}")
        return Target(**data)


# --------------------------------------------------------------------------- where they come from

_SIZES = (
    "vector_bytes", "vector_registers", "cores", "l1_bytes", "l2_bytes", "l3_bytes", "l1_ways",
    "line_bytes", "threads", "warp", "shared_bytes", "max_threads", "registers",
    "multiprocessors", "device",
)  # fmt: skip
_MAY_BE_ZERO = ("l3_bytes", "shared_bytes", "registers", "device")
_FIELDS = {f.name: f.default is dataclasses.MISSING for f in dataclasses.fields(Target)}
"""Name -> whether it has to be given."""


def parse_target(text: str, source: str = "target file") -> Target:
    """A Target from TOML text: one key per field. Raises TargetError naming `source`."""
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise TargetError(f"{source}: not TOML: {error}; one `key = value` a line") from None
    if unknown := sorted(data.keys() - _FIELDS):
        known = ", ".join(_FIELDS)
        raise TargetError(f"{source}: unknown key {', '.join(unknown)}; known: {known}")
    if missing := sorted(name for name, needed in _FIELDS.items() if needed and name not in data):
        raise TargetError(f"{source}: missing key {', '.join(missing)}")
    try:
        target = Target.from_json(data)
    except TypeError as error:
        raise TargetError(f"{source}: {error}") from None
    for name, value in data.items():
        if isinstance(value, int) and value < (0 if name in _MAY_BE_ZERO else 1):
            raise TargetError(f"{source}: {name} must be positive, got {value}")
    if target.kind not in KINDS:
        raise TargetError(f"{source}: kind must be one of {', '.join(KINDS)}, got {target.kind!r}")
    return target


def print_target(target: Target) -> str:
    """The TOML text that `parse_target` reads back to an equal Target."""
    return "".join(f"{k} = {json.dumps(v)}\n" for k, v in target.to_json().items())


TARGETS: Registry[Target] = Registry("target")
"""Targets that plugins describe; `add_target` takes their TOML text."""


def add_target(name: str, text: str) -> Target:
    """Register a target under a name, by TOML text as in configs/targets. Raises TargetError for
    what `parse_target` refuses, ConfigError where the name is taken."""
    if name in ("cpu", *_shipped()):
        raise ConfigError(f"target {name!r} is one of the project's own; choose another name")
    return TARGETS.add(name, parse_target(text, f"target {name}"))


def target_names() -> tuple[str, ...]:
    """Names that `load_target` knows without a file: this host first."""
    return ("cpu", *sorted((*_shipped(), *TARGETS)))


def _shipped() -> tuple[str, ...]:
    """Names of the project's own targets but for this host."""
    files = (f.name for f in resources.files("autotune.configs.targets").iterdir())
    return tuple(n.removesuffix(".toml") for n in files if n.endswith(".toml"))


def load_target(name_or_path: str, threads: int = 1) -> Target:
    """'cpu' is this host; other names are shipped descriptions; anything with a path separator or
    ending in .toml is a file; ":1" after a GPU's is the second device. `threads` is how many a
    kernel runs on. Raises TargetError listing what exists."""
    threads = arguments.whole("threads", threads, 1, MAX_THREADS, TargetError)
    name, colon, number = name_or_path.rpartition(":")
    if colon and (device := whole(number, MAX_DEVICES)) is not None:
        found = load_target(name, threads)
        if not found.is_gpu:
            raise TargetError(f"{name} has no devices to choose from; leave out :{number}")
        return dataclasses.replace(found, device=device)
    if name_or_path == "cpu":
        return host_target(threads)
    if name_or_path.endswith(".toml") or os.sep in name_or_path:
        try:
            text = Path(name_or_path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "not a text file"
            raise TargetError(f"cannot read target file {name_or_path}: {reason}") from None
        return parse_target(text, name_or_path).with_threads(threads)
    if name_or_path in _shipped():
        file = resources.files("autotune.configs.targets") / f"{name_or_path}.toml"
        return parse_target(file.read_text(encoding="utf-8"), file.name).with_threads(threads)
    if name_or_path in TARGETS:
        return TARGETS.get(name_or_path).with_threads(threads)
    raise TargetError(
        f"unknown target {name_or_path!r}; expected one of {', '.join(target_names())}, or a "
        "path of a .toml file"
    )


# ---------------------------------------------------------------------------------- this machine


def machine_of(name: str) -> str:
    """A machine under one name, by an LLVM triple or the system's word: arm64 is aarch64, armv7l
    is arm."""
    first = name.partition("-")[0].lower()
    names = {"amd64": "x86_64", "arm64": "aarch64", "riscv64gc": "riscv64"}
    if first.startswith(("armv", "thumb")):
        return "arm"
    return names.get(first, first)


def host_target(threads: int = 1) -> Target:
    """This machine, as LLVM and the operating system describe it. Raises TargetError where there
    is no LLVM."""
    try:
        import llvmlite.binding as llvm  # a target file needs no LLVM
    except ImportError:
        raise TargetError(
            "what this machine is, llvmlite would tell, and it is not installed: name a target "
            f"(--target {'|'.join(n for n in target_names() if n != 'cpu')}), or a .toml file"
        ) from None

    triple = llvm.get_process_triple()
    flags = dict(llvm.get_host_cpu_features())
    if flags.get(TILES[1:]) and tile_permission.refusal():
        flags |= {name: False for name in flags if name.startswith("amx-")}
    vector_bytes, registers = _vectors(triple, flags)
    sizes = caches.sizes(caches.ROOT)
    return Target(
        name="cpu",
        kind="cpu",
        triple=triple,
        cpu=llvm.get_host_cpu_name(),
        features=host_features(flags),
        vector_bytes=vector_bytes,
        vector_registers=registers,
        cores=len(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else os.cpu_count() or 1,
        l1_bytes=sizes.get(1, 32 << 10),
        l2_bytes=sizes.get(2, 512 << 10),
        l3_bytes=sizes.get(3, 0 if sizes else 8 << 20),
        l1_ways=caches.inner(caches.ROOT, "ways_of_associativity", 8),
        line_bytes=caches.inner(caches.ROOT, "coherency_line_size", 64),
        threads=threads,
    )


def host_features(flags: Mapping[str, bool]) -> str:
    """LLVM's feature string of what the host has and has not; 512-bit registers are used where
    they exist. What the CPU's name stands for, which LLVM guesses and a hypervisor may hide or
    trim, is taken away first: the name is for tuning only, and code has what the host has."""
    features = [f"-{name}" for name in sorted(flags) if not flags[name]]
    features += [f"+{name}" for name in sorted(flags) if flags[name]]
    return ",".join([*features, *(["-prefer-256-bit"] if flags.get("avx512f") else [])])


def _vectors(triple: str, flags: Mapping[str, bool]) -> tuple[int, int]:
    """(bytes of a vector register, number of them)."""
    if flags.get("avx512f"):
        return 64, 32
    if flags.get("avx"):
        return 32, 16
    return 16, 16 if triple.startswith(("x86_64", "i386", "i686")) else 32
