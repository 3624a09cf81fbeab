"""Profiles of devices, kept in the log beside their records.

In: the profile of a device that is about to measure. Out: the latest one of every device, so that
records can be understood where another device learns from them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, select

from autotune.db import codec
from autotune.db.clock import utc_now
from autotune.db.damage import Damage
from autotune.db.schema import PROFILES
from autotune.db.store import TuningLog
from autotune.machine.profile import DeviceProfile

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
        found = {} if connection is None else latest(connection, log.damage)
    profiles = {}
    for key, text in found.items():
        try:
            profiles[key] = DeviceProfile.from_json(json.loads(text))
        except (ValueError, KeyError, TypeError, AttributeError):
            continue
    return profiles


def latest(connection: Connection, damage: Damage) -> dict[Key, str]:
    """The latest JSON text of every device and target that is not damaged."""
    found = {}
    for row in connection.execute(select(PROFILES).order_by(PROFILES.c.id)):
        if damage.is_whole("profiles", row.id, row._mapping):
            found[row.device, row.target_key] = row.json
    return found


# ---------------------------------------------------------------------------------- for exchange


def profile_item(device: str, target_key: str, profile: Any) -> dict[str, Any]:
    """A profile as an item of an exported log."""
    return {"kind": "profile", "device": device, "target": target_key, "profile": profile}


def file_profiles(connection: Connection, items: Sequence[Mapping[str, Any]]) -> None:
    """Add the profiles that differ from the latest of their device."""
    if not items:
        return
    known = latest(connection, Damage(""))
    rows = [
        {"device": i["device"], "target_key": i["target"], "json": codec.to_text(i["profile"])}
        for i in items
    ]
    new = [r for r in rows if known.get((r["device"], r["target_key"])) != r["json"]]
    if new:
        now = utc_now()
        sealed = [codec.sealed("profiles", {**row, "created": now}) for row in new]
        connection.execute(PROFILES.insert(), sealed)
