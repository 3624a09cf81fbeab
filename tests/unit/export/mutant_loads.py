"""A process that loads damaged files, one after the other: what it may do is refuse them in one
line, or take them and compute what the sound file computes.

    python -m tests.unit.export.mutant_loads KIND FILE FOLDER FIRST COUNT

In: a kind of file, a sound one, a folder to write to, seeds. Out: a line of JSON: how many were
refused and taken. A seed that is handled otherwise is an exception; the last one begun is in
FOLDER/seed, should the process not come back.
"""

from __future__ import annotations

import gc
import json
import random
import resource
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

import autotune
from autotune.errors import ArtifactError, BuildError
from autotune.graph.feeds import random_feeds
from autotune.runtime.image import ModelImage
from autotune.runtime.image_file import describe, read_any_image
from autotune.runtime.model import CompiledModel
from autotune.runtime.native_session import SessionMaker
from autotune.runtime.sized import SizedModel
from tests.unit.export.mutants import exchanged, mutant, respelt

MEMORY_BYTES = 8 << 30
"""Memory that a process may have: what a file claims is not taken from the machine."""
LONGEST = 600
"""Characters of a line."""
Results = dict[str, np.ndarray]


def artifact(path: Path) -> Results:
    """What a saved model computes."""
    model = autotune.load(path)
    if isinstance(model, SizedModel):
        sizes = {name: allowed.least for name, allowed in model.ranges.items()}
        kinds = {name: kind.at(sizes) for name, kind in model.inputs.items()}
        return model.run(random_feeds(kinds, 3))
    return model.run(random_feeds(model.inputs, 3))


def created(path: Path) -> Results:
    """Nothing of a saved model that is loaded and not run: its code is none that the manifest was
    made for."""
    image = read_any_image(path)
    describe(str(path))
    if isinstance(image, ModelImage):
        CompiledModel(image)
        SessionMaker(image, None)()
    else:
        SizedModel.of(image)
    return {}


def inspected(path: Path) -> Results:
    """Nothing of an exported file whose seal is read."""
    from autotune.export.seal import read_seal  # which the runtime's wheel does not have

    read_seal(path.read_bytes(), str(path))
    return {}


Damage = Callable[[bytes, random.Random], bytes]
KINDS: dict[str, tuple[Damage, Callable[[Path], Results]]] = {
    "artifact": (mutant, artifact),
    "exchanged": (exchanged, artifact),
    "respelt": (respelt, created),
    "sealed": (mutant, inspected),
}


def check(kind: str, sound: Path, folder: Path, seeds: range) -> dict[str, int]:
    """Counts of what was refused and taken."""
    damage, load = KINDS[kind]
    data, expected = sound.read_bytes(), load(sound) if kind != "respelt" else {}
    counts = {"refused": 0, "taken": 0}
    path = folder / "mutant"
    for seed in seeds:
        (folder / "seed").write_text(str(seed))
        path.unlink(missing_ok=True)
        path.write_bytes(damage(data, random.Random(seed)))
        try:
            found = load(path)
        except (ArtifactError, BuildError) as error:
            counts["refused"] += 1
            said = str(error)
            assert said.strip(), f"seed {seed}: no words"
            assert "\n" not in said, f"seed {seed}: {said}"
            assert len(said) < LONGEST, f"seed {seed}: {said}"
            continue
        counts["taken"] += 1
        assert list(found) == list(expected), f"seed {seed}: other outputs"
        for name, array in found.items():
            np.testing.assert_array_equal(array, expected[name], f"seed {seed}")
        if not seed % 64:
            gc.collect()
    return counts


if __name__ == "__main__":
    asked, sound, folder, first, count = sys.argv[1:]
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    seeds = range(int(first), int(first) + int(count))
    print(json.dumps(check(asked, Path(sound), Path(folder), seeds)))
