"""The time stamps of a log's rows. In: nothing. Out: the time as text. Standard library only."""

from __future__ import annotations

import datetime
import functools
import time


def utc_now() -> str:
    """The time as ISO 8601 in UTC, to the second."""
    return _text(int(time.time()))


@functools.lru_cache(maxsize=1)
def _text(second: int) -> str:
    """Made once a second: thousands of records have the same."""
    return datetime.datetime.fromtimestamp(second, datetime.UTC).isoformat()
