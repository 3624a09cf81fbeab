"""Tiny networks of `transformers` give what eager gives, decoders all tokens of `generate`; more
networks by `python benchmarks/pytorch/torch_models.py`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARK = Path(__file__).parents[3] / "benchmarks/pytorch/torch_models.py"
DECODERS = ("gpt2", "llama", "t5", "whisper")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bert", "vit", "clip", *DECODERS])
def test_a_network_of_transformers(name: str, tmp_path: Path) -> None:
    """In a process of its own, as a benchmark runs it."""
    rows = tmp_path / "rows.jsonl"
    done = subprocess.run(
        [sys.executable, BENCHMARK, name, "--rows", rows, "--limit", "600"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    (row,) = (json.loads(line) for line in rows.read_text().splitlines())
    assert done.returncode == 0, row
    assert row["error"] <= (0 if name in DECODERS else 1e-5)
    assert row["told"] == []
