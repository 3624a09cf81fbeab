"""A hostile kernel as object code: see hostile.c. In: what is secret. Out: a request to run it."""

from __future__ import annotations

import dataclasses
import json
import subprocess
from collections.abc import Sequence
from pathlib import Path

from autotune.measure.executor import kernel_symbol
from autotune.measure.types import Built, MeasureRequest
from autotune.target import host_target
from tests.unit.measure import fakes, tasks

SOURCE = Path(__file__).with_suffix(".c")


def hostile_request(
    folder: Path, secrets: Sequence[str], word: str, shm_key: int = 0
) -> MeasureRequest:
    """A candidate that looks for files, a word in its environment and a block of shared memory.
    Compiled in `folder`."""
    task = tasks.matmul()
    symbol = kernel_symbol(task)
    code = folder / "hostile.o"
    names = "".join(json.dumps(path) + "," for path in secrets)
    defined = {"KERNEL": symbol, "KERNEL_run": f"{symbol}_run", "SECRETS": names,
               "WORD": json.dumps(word), "SHM_KEY": str(shm_key)}  # fmt: skip
    subprocess.run(
        ["cc", "-c", "-O1", "-fno-pic", "-fno-builtin", "-fno-stack-protector", "-mcmodel=large",
         *(f"-D{name}={text}" for name, text in defined.items()), str(SOURCE), "-o", str(code)],
        check=True,
    )  # fmt: skip
    request = MeasureRequest(
        task=task, schedule=(), target=host_target(), timing=fakes.PATIENT, seed=3
    )
    built = Built(symbol=symbol, code=code.read_bytes(), workspace_bytes=0)
    return dataclasses.replace(request, built=built)
