"""Names that steps had in earlier releases. In: a step as JSON. Out: today's name, or the former.

A log holds the names of its time: `schedule_from_json` reads them all, new records hold today's.
To rename a step, add its former name here and change nothing in the logs; texts of schedules that
are looked up in a log are compared under both (`autotune.schedule.base.spellings`).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

RENAMED: Mapping[str, str] = MappingProxyType({
    "abreast": "distribute",
    "ahead": "software_pipeline",
    "attend": "flash_attention",
    "claim": "partition_scatter",
    "flat": "flatten",
    "join": "fuse_reduction_terms",
    "keep": "scalar_replacement",
    "matrix": "cast_matrix",
    "narrow": "cast",
    "once": "unit_loop",
    "private": "privatize",
    "roll": "rolling_window",
    "slide": "shared_window_terms",
    "solo": "single_thread",
    "stream": "async_pipeline",
    "uniform": "uniform_bounds",
    "write_out": "peel_all",
})  # fmt: skip
"""Former name -> today's. No former name may become that of another step."""
FORMER: Mapping[str, str] = MappingProxyType({new: old for old, new in RENAMED.items()})
"""Today's name -> the former one."""
