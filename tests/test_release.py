"""Which release this is, installed or not."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

import autotune
from autotune.release import release


def test_the_release_is_that_of_the_package() -> None:
    assert release() == autotune.__version__ == metadata.version("autotune-compiler")


BARE = """
from importlib import metadata
original = metadata.distribution
def distribution(name):
    if name == "autotune-compiler":
        raise metadata.PackageNotFoundError(name)
    return original(name)
metadata.distribution = distribution
import autotune
model = autotune.compile("zoo:tiny", target="cpu")
report = autotune.tune("zoo:tiny", target="cpu", trials=1, log="tuning.db")
print(autotune.__version__, model.image.versions[0])
"""


@pytest.mark.slow
def test_a_bare_tree_compiles_and_tunes(tmp_path: Path) -> None:
    """As it lies on a machine on which nothing can be installed."""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    done = subprocess.run(
        [sys.executable, "-c", BARE], cwd=tmp_path, env=environment, capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "unknown ('autotune-compiler', 'unknown')"
