"""The run that a report compares with. In: a date, another log, or the model's measured runs. Out:
the best time of a task then.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from autotune.db.types import Latency, LogStore, Record
from autotune.target import Target
from cost_model.train import measured_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Earlier:
    """Records up to a moment, or those of another log."""

    what: str
    """Ends the sentence `compared with ...`."""
    until: str = ""
    """ISO 8601: later records of the same log were not there yet."""
    store: LogStore | None = None
    target: Target | None = None

    @classmethod
    def of_previous(cls, latencies: Sequence[Latency], device: str) -> Self | None:
        """What was there when the model was measured on the device for the last time but one."""
        here = [v.created for v in latencies if v.device == device]
        if len(here) < 2:
            return None
        return cls.up_to(here[-2])

    @classmethod
    def up_to(cls, moment: str) -> Self:
        return cls(what=f"the log as it was on {moment[:16].replace('T', ' ')}", until=moment)

    @classmethod
    def of_log(cls, store: LogStore, target: Target, name: str) -> Self:
        return cls(what=f"the log {name}", store=store, target=target)

    def best_s(self, task_key: str, records: Sequence[Record]) -> float | None:
        """Fastest measured time of a task then; `records`: those of the log that is reported."""
        if self.store is not None and self.target is not None:
            records = self.store.records(task_key, self.target)
        times = [measured_s(r) for r in records if not self.until or r.created <= self.until]
        return min((t for t in times if math.isfinite(t)), default=None)
