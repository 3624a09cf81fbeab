"""Cores that are simulated: how code for each is compiled, where it lies, what it costs. In: a
target. Out: its core.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from autotune.errors import ConfigError
from autotune.measure.simulator import riscv, thumb
from autotune.measure.simulator.costs import BlockCosts
from autotune.target import Target


@dataclass(frozen=True, slots=True, kw_only=True)
class Core:
    """A core on a board with memory for a small model. Addresses are of the board."""

    name: str
    clock_hz: float
    """Chosen: the clock of boards whose results of MLPerf Tiny are published."""
    compiler: str
    packages: str
    """Debian's, with the compiler and its C library."""
    flags: tuple[str, ...]
    costs: BlockCosts
    is_arm: bool
    qemu: str
    """The program that simulates a board with it."""
    machine: tuple[str, ...]
    """Its options: the board, without firmware."""
    vectors: int
    """Where the core begins: its vectors or its first instruction."""
    code: int
    memory: int
    memory_bytes: int
    library_flags: tuple[str, ...] = ()
    """Those that libraries are found by, where compilers bring none for `flags`."""
    unicorn: str = ""
    """Unicorn's name of the core; empty: it has none such."""
    apart: int = 4096
    """Blocks of data lie on multiples of it, with as much between two."""
    stack_bytes: int = 64 << 10
    """Bytes of a stack beside the data; none where the board has its own."""


_ARM = "arm-none-eabi-gcc"
_ARM_PACKAGES = "gcc-arm-none-eabi libnewlib-arm-none-eabi"
_RISCV = "riscv64-unknown-elf-gcc"
_RISCV_PACKAGES = "gcc-riscv64-unknown-elf picolibc-riscv64-unknown-elf"
_RISCV_FLAGS = ("-mabi=ilp32", "-mcmodel=medany", "--specs=picolibc.specs")
_MIB = 1 << 20


def _soft(cpu: str) -> tuple[str, ...]:
    return (f"-mcpu={cpu}", "-mthumb", "-mfloat-abi=soft")


CORES: Mapping[str, Core] = MappingProxyType({
    "generic": Core(
        name="Cortex-M4", clock_hz=120e6, compiler=_ARM, packages=_ARM_PACKAGES,
        flags=_soft("cortex-m4"), costs=thumb.block_cost, is_arm=True,
        qemu="qemu-system-arm", machine=("-M", "mps2-an386"), vectors=0, code=0x8000,
        memory=0x2100_0000, memory_bytes=16 * _MIB, unicorn="UC_CPU_ARM_CORTEX_M4",
    ),
    "cortex-m7": Core(
        name="Cortex-M7", clock_hz=280e6, compiler=_ARM, packages=_ARM_PACKAGES,
        flags=_soft("cortex-m7"),
        costs=functools.partial(thumb.block_cost, table=thumb.CORTEX_M7), is_arm=True,
        qemu="qemu-system-arm", machine=("-M", "mps2-an500"), vectors=0, code=0x8000,
        memory=0x6000_0000, memory_bytes=16 * _MIB, unicorn="UC_CPU_ARM_CORTEX_M7",
    ),
    "cortex-m33": Core(
        name="Cortex-M33", clock_hz=120e6, compiler=_ARM, packages=_ARM_PACKAGES,
        flags=_soft("cortex-m33"),
        costs=functools.partial(thumb.block_cost, table=thumb.CORTEX_M33), is_arm=True,
        qemu="qemu-system-arm", machine=("-M", "mps2-an505"), vectors=0x1000_0000,
        code=0x1000_8000, memory=0x8000_0000, memory_bytes=16 * _MIB,
        unicorn="UC_CPU_ARM_CORTEX_M33",
    ),
    "cortex-m55": Core(
        name="Cortex-M55", clock_hz=160e6, compiler=_ARM, packages=_ARM_PACKAGES,
        flags=("-mcpu=cortex-m55", "-mthumb", "-mfloat-abi=hard"),
        costs=functools.partial(thumb.block_cost, table=thumb.CORTEX_M55), is_arm=True,
        qemu="qemu-system-arm", machine=("-M", "mps3-an547"), vectors=0, code=0x8000,
        memory=0x7000_0000, memory_bytes=64 * _MIB,
    ),
    "rv32imac": Core(
        name="RV32IMAC", clock_hz=120e6, compiler=_RISCV, packages=_RISCV_PACKAGES,
        flags=("-march=rv32imac", *_RISCV_FLAGS),
        costs=riscv.block_cost, is_arm=False, qemu="qemu-system-riscv32",
        machine=("-M", "virt", "-m", "128M", "-cpu", "rv32,f=false,d=false"),
        vectors=0x8000_0000, code=0x8000_8000, memory=0x8200_0000, memory_bytes=64 * _MIB,
        unicorn="UC_CPU_RISCV32_ANY",
    ),
    "rv32imac-v": Core(
        name="RV32IMAC with vectors", clock_hz=120e6, compiler=_RISCV, packages=_RISCV_PACKAGES,
        flags=("-march=rv32imac_zve32x", *_RISCV_FLAGS),
        library_flags=("-march=rv32imac", *_RISCV_FLAGS),
        costs=riscv.block_cost, is_arm=False, qemu="qemu-system-riscv32",
        machine=("-M", "virt", "-m", "128M", "-cpu", "rv32,v=true,vlen=128"),
        vectors=0x8000_0000, code=0x8000_8000, memory=0x8200_0000, memory_bytes=64 * _MIB,
    ),
})  # fmt: skip
"""By the CPU of a target; `generic` is that of `cortex-m4`."""


def core_of(target: Target) -> Core:
    """Raises ConfigError where there is none for it."""
    found = CORES.get(target.cpu) if target.is_compact else None
    if found is None:
        raise ConfigError(
            f"there is no simulated core for target {target.name} (cpu {target.cpu}); its cpu "
            f"must be one of {', '.join(CORES)}"
        )
    return found
