"""A microcontroller at a serial port, for tests: QEMU's board runs the firmware of
examples/deploy, behind a pty."""

from __future__ import annotations

import contextlib
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tests.pages import ROOT
from tests.patience import PATIENCE_S


@contextlib.contextmanager
def simulated_board(folder: Path) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """The pty's name, and the board's process; `folder` is for the firmware. Needs what the test
    need `cortex-m` names."""
    made = folder / "board.elf"
    examples = ROOT / "examples/deploy"
    sources = [examples / n for n in ("serial_board.c", "serial_board_mps2.c", "vectors.c")]
    subprocess.run(
        ["arm-none-eabi-gcc", "-std=c99", "-Wall", "-Wextra", "-pedantic", "-Werror", "-Os",
         "-mcpu=cortex-m4", "--specs=nosys.specs", "-Wl,--section-start=.vectors=0",
         *map(str, sources), "-o", str(made)],
        check=True, timeout=PATIENCE_S,
    )  # fmt: skip
    with subprocess.Popen(
        ["qemu-system-arm", "-M", "mps2-an386", "-nographic", "-monitor", "none", "-serial", "pty",
         "-kernel", str(made)],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        found = re.search(r"/dev/pts/\d+", process.stdout.readline())
        assert found is not None
        yield found[0], process
        process.kill()
