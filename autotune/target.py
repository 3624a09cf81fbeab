"""Targets: what code is generated for. In: a name, a TOML file or this machine. Out: a Target."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A device as the compiler sees it. Sizes in bytes; caches are per core except l3."""

    name: str
    kind: str
    """cpu (cuda and opencl are to come)."""
    triple: str
    cpu: str
    """LLVM's CPU name."""
    features: str
    """LLVM feature string: '+avx2,+fma,-prefer-256-bit'."""
    vector_bytes: int
    vector_registers: int
    cores: int
    l1_bytes: int
    l2_bytes: int
    l3_bytes: int
    threads: int = 1
    """Threads a kernel runs on. Part of the key: records of other thread counts do not mix."""

    @property
    def family(self) -> str:
        """kind-arch-vector width: records of one family are worth trying on another member."""
        return f"{self.kind}-{self.triple.split('-')[0]}-v{self.vector_bytes * 8}"

    @property
    def key(self) -> str:
        """What records are filed under: family, CPU and thread count."""
        return f"{self.family}-{self.cpu}-t{self.threads}"

    def lanes(self, item_bytes: int = 4) -> int:
        """Elements of one vector register."""
        return max(1, self.vector_bytes // item_bytes)

    def with_threads(self, threads: int) -> Target:
        return dataclasses.replace(self, threads=threads)

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Target:
        return Target(**data)
