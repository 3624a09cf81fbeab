"""What a worker process does for its parent, and the built candidate that travels between them.

In: MeasureRequest. Out: Built, then MeasureResult. Building and running are two calls, so that one
process can build ahead while another one, alone on its cores, checks and times.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from autotune.errors import ConfigError
from autotune.measure.types import DeviceProfile, MeasureRequest, MeasureResult
from autotune.program.ir import Pack
from autotune.target import Target


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """Object code of one candidate and what calling it takes."""

    symbol: str
    code: bytes
    workspace_bytes: int
    packs: tuple[Pack, ...] = ()
    build_s: float = 0.0

    def header(self) -> dict[str, Any]:
        """Everything but the code, as JSON-able data."""
        return {
            "symbol": self.symbol,
            "workspace_bytes": self.workspace_bytes,
            "packs": [
                {
                    "buffer": p.buffer,
                    "shape": p.shape,
                    "splits": p.splits,
                    "order": p.order,
                    "transforms": p.transforms,
                }
                for p in self.packs
            ],
            "build_s": self.build_s,
        }

    @staticmethod
    def from_header(data: Mapping[str, Any], code: bytes) -> Built:
        packs = tuple(
            Pack(
                p["buffer"],
                tuple(p["shape"]),
                tuple((int(d), int(f)) for d, f in p["splits"]),
                tuple(p["order"]),
                tuple((int(d), int(m), int(r)) for d, m, r in p["transforms"]),
            )
            for p in data["packs"]
        )
        return Built(
            symbol=data["symbol"],
            code=code,
            workspace_bytes=int(data["workspace_bytes"]),
            packs=packs,
            build_s=float(data["build_s"]),
        )


class Executor(Protocol):
    """The work of a worker process. An instance lives as long as its process and may cache."""

    def build(self, request: MeasureRequest) -> Built:
        """Raises AutotuneError where the schedule is illegal or code generation fails."""
        ...

    def prepare(self, request: MeasureRequest) -> None:
        """Make inputs and reference values of the request's task, so that the time this takes is
        not counted against the first candidate's deadline."""
        ...

    def check_and_time(self, request: MeasureRequest, built: Built) -> MeasureResult: ...

    def profile(self, target: Target) -> DeviceProfile: ...


DEFAULT_EXECUTOR = "autotune.measure.execute:NativeExecutor"


def load_executor(spec: str) -> Executor:
    """The executor named 'package.module:Class', made without arguments."""
    module, _, name = spec.partition(":")
    if not module or not name:
        raise ConfigError(f"an executor is named 'package.module:Class', got {spec!r}")
    executor: Executor = getattr(importlib.import_module(module), name)()
    return executor
