"""A device's profile, measured by itself. In: its measurements. Out: values, and JSON of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from autotune.machine.facts import MachineFacts
from autotune.target import Target


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheLevel:
    """One level of the memory hierarchy as measured on one core. The last level is memory."""

    name: str
    size_bytes: int
    load_bytes_per_s: float
    store_bytes_per_s: float = 0.0
    """0 where it was not measured."""
    copy_bytes_per_s: float = 0.0
    """Bytes copied, each loaded and stored once; 0 where it was not measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceProfile:
    """A device's own measurements of its speeds; other speeds are in `autotune.machine.value`."""

    device: str
    """Stable name: host name, CPU model."""
    target: Target
    peak_flops: float
    """Fused multiply-add peak of one core, float32, FLOP/s."""
    levels: tuple[CacheLevel, ...]
    parallel_region_s: float
    width_peaks: tuple[tuple[int, float], ...] = ()
    """(vector bytes, peak FLOP/s) of every vector width the core has, narrowest first."""
    facts: MachineFacts | None = None
    """What micro-benchmarks found out about the machine; None in profiles from before there were
    any, and of devices that have none."""

    def to_json(self) -> dict[str, Any]:
        data = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        data["target"] = self.target.to_json()
        data["levels"] = [dataclasses.asdict(level) for level in self.levels]
        if self.facts is None:
            del data["facts"]  # as it was before there were any: older releases read it
        else:
            data["facts"] = self.facts.to_json()
        return data

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> DeviceProfile:
        """Raises KeyError, TypeError and ValueError for what is no profile."""
        fields = dict(data)
        fields["target"] = Target.from_json(fields["target"])
        fields["levels"] = tuple(CacheLevel(**level) for level in fields["levels"])
        peaks = fields.get("width_peaks", ())
        fields["width_peaks"] = tuple((int(width), float(peak)) for width, peak in peaks)
        facts = fields.get("facts")
        fields["facts"] = None if facts is None else MachineFacts.from_json(facts)
        return DeviceProfile(**fields)
