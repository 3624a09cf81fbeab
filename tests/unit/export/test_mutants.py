"""Damaged files end no process and read nothing beyond themselves: each is refused in one line, or
computes what the sound one does. A sample; `benchmarks/deployment/fuzzed_files.py` loads 10,000 of
each."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

import autotune
from autotune.export.write import WASM
from autotune.runtime.model import CompiledModel
from tests.needs import require
from tests.unit.export import mutant_programs
from tests.unit.export.test_export import exported

INPUT_BYTES = 12288
"""Bytes of zoo:tiny's input."""


@pytest.fixture(scope="module")
def tiny() -> CompiledModel:
    return autotune.compile("zoo:tiny")


@pytest.mark.parametrize("kind", ["artifact", "exchanged", "respelt"])
@pytest.mark.parametrize("count", [150, pytest.param(3000, marks=pytest.mark.slow)])
def test_saved_models(kind: str, count: int, tiny: CompiledModel, tmp_path: Path) -> None:
    """They are mapped: reading beyond their end would be a signal."""
    tiny.save(tmp_path / "tiny.model")
    words = ["tests.unit.export.mutant_loads", kind, str(tmp_path / "tiny.model"), str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-m", *words, "0", str(count)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    counts = json.loads(done.stdout)
    assert sum(counts.values()) == count
    assert counts["refused"] > count // 2


def test_a_file_of_weights_in_c(tiny: CompiledModel, tmp_path: Path) -> None:
    """AddressSanitizer watches what the program and the C library read."""
    require("cc")
    exported(tiny, tmp_path, format="object", weights="file")
    (tmp_path / "in0.bin").write_bytes(bytes(INPUT_BYTES))
    mutant_programs.sanitized(tmp_path)
    counts = mutant_programs.weights(tmp_path, range(20))
    assert counts["refused"] > 0


@pytest.mark.parametrize(
    ("load", "count"), [(mutant_programs.modules, 60), (mutant_programs.scripts, 3)]
)
def test_webassembly(
    load: Callable[[Path, Iterable[int]], dict[str, int]], count: int, tmp_path: Path
) -> None:
    require("node")
    exported(autotune.compile("zoo:tiny", target=WASM), tmp_path, format="wasm")
    (tmp_path / "in0.bin").write_bytes(bytes(INPUT_BYTES))
    assert sum(load(tmp_path, range(count)).values()) == count
