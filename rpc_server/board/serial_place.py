"""The option `--serial PORT[,BAUD]` of a board. In: its text. Out: the port and what is at it."""

from __future__ import annotations

from autotune.errors import ConfigError
from autotune.measure.simulator.cores import core_of
from autotune.measure.simulator.serial_engine import SerialPlace, serial_board
from autotune.parse_int import whole
from autotune.target import Target

USUAL_BAUD = 115200
MOST_BAUD = 100_000_000


def serial_place(text: str | None, simulator: str | None, target: Target) -> SerialPlace | None:
    """None where there is no such option. Raises ConfigError for what cannot be meant, DeviceError
    where no board of ours answers there."""
    if text is None:
        return None
    if simulator:
        raise ConfigError(
            "--serial is a board, --simulator takes its place; leave one of them out"
        )
    if not target.is_compact:
        raise ConfigError(
            f"--serial is for microcontrollers, and target {target.name} is none; take "
            "--target cortex-m4"
        )
    core_of(target)
    path, comma, speed = text.partition(",")
    baud = whole(speed, MOST_BAUD) if comma else USUAL_BAUD
    if not path or not baud:
        raise ConfigError(f"expected --serial PORT or PORT,BAUD, got {text!r:.200}")
    return serial_board(path, baud)
