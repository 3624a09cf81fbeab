"""What devices measured about themselves, as kept in the log beside their records.

In: the profile of a device that is about to measure. Out: the latest one of every device, so that
records can be understood where another device learns from them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, func, select

from autotune.db import codec
from autotune.db.schema import PROFILES
from autotune.db.store import TuningLog, utc_now
from autotune.measure.types import DeviceProfile

Key = tuple[str, str]
"""(device, target key)"""


def keep_profile(log: TuningLog, profile: DeviceProfile) -> None:
    """Add the profile, unless the log's latest of this device is the same. Raises LogError."""
    with log.writing() as connection:
        file_profiles(
            connection, [profile_item(profile.device, profile.target.key, profile.to_json())]
        )


def kept_profiles(log: TuningLog) -> dict[Key, DeviceProfile]:
    """The latest of every device and target; those of another form are left out."""
    with log.reading() as connection:
        found = {} if connection is None else latest(connection)
    profiles = {}
    for key, text in found.items():
        try:
            profiles[key] = DeviceProfile.from_json(json.loads(text))
        except (ValueError, KeyError, TypeError, AttributeError):
            continue
    return profiles


def latest(connection: Connection) -> dict[Key, str]:
    """The latest JSON text of every device and target."""
    last = select(func.max(PROFILES.c.id)).group_by(PROFILES.c.device, PROFILES.c.target_key)
    rows = connection.execute(select(PROFILES).where(PROFILES.c.id.in_(last)))
    return {(row.device, row.target_key): row.json for row in rows}


# ---------------------------------------------------------------------------------- for exchange


def profile_item(device: str, target_key: str, profile: Any) -> dict[str, Any]:
    """A profile as an item of an exported log."""
    return {"kind": "profile", "device": device, "target": target_key, "profile": profile}


def file_profiles(connection: Connection, items: Sequence[Mapping[str, Any]]) -> None:
    """Add the profiles that differ from the latest of their device."""
    if not items:
        return
    known = latest(connection)
    rows = [
        {"device": i["device"], "target_key": i["target"], "json": codec.to_text(i["profile"])}
        for i in items
    ]
    new = [r for r in rows if known.get((r["device"], r["target_key"])) != r["json"]]
    if new:
        now = utc_now()
        connection.execute(PROFILES.insert(), [{**row, "created": now} for row in new])
