"""Damaged files given to programs without Python: `main` with a file of weights, and node.

In: an exported folder, seeds. Out: counts of what was refused in one line and what was taken.
Weights are numbers, their file is checked by its size and its last bytes: a flipped weight is
taken and gives other numbers, so of them it is asked that the program comes back.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from tests.unit.export.mutants import mutant

SANITIZED = ("-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
SECONDS = 60
"""Until a program is taken to hang."""
REFUSED = 2
"""Exit status of a refusal."""
IN_NODE = """
import { readFileSync } from "node:fs";
import { load } from "./model.mjs";
const sound = new Uint8Array(readFileSync("model.wasm"));
const counts = { refused: 0, taken: 0 };
for (const file of process.argv.slice(2)) {
  const bytes = new Uint8Array(readFileSync(file));
  try {
    await load(bytes);
  } catch (error) {
    if (!(error instanceof TypeError) || error.message.includes("\\n")) throw error;
    counts.refused++;
    continue;
  }
  if (Buffer.compare(bytes, sound)) throw new Error(`${file} was changed and is taken`);
  counts.taken++;
}
console.log(JSON.stringify(counts));
"""


def sanitized(folder: Path) -> Path:
    """`main` of an exported object, built to end where it reads what is not its own."""
    command = ["cc", *SANITIZED, "main.c", "model.o", "-lm", "-lpthread", "-o", "main"]
    subprocess.run(command, cwd=folder, check=True)
    return folder / "main"


def weights(folder: Path, seeds: Iterable[int]) -> Counter[str]:
    """Damaged `model.weights` loaded by `main`."""
    data, counts = (folder / "model.weights").read_bytes(), Counter[str]()
    words = ["./main", "in0.bin", "-o", "out0.bin", "--weights", "mutant"]
    for seed in seeds:
        (folder / "mutant").write_bytes(mutant(data, random.Random(seed)))
        done = run(words, folder)
        counts[_settled(done, seed)] += 1
    return counts


def modules(folder: Path, seeds: Iterable[int]) -> Counter[str]:
    """Damaged `model.wasm`, loaded by one process of node."""
    data, files = (folder / "model.wasm").read_bytes(), []
    for seed in seeds:
        files.append(f"mutant{seed}")
        (folder / files[-1]).write_bytes(mutant(data, random.Random(seed)))
    (folder / "loads.mjs").write_text(IN_NODE)
    done = run(["node", "loads.mjs", *files], folder)
    assert done.returncode == 0, done.stderr
    for file in files:
        (folder / file).unlink()
    return Counter(json.loads(done.stdout))


def scripts(folder: Path, seeds: Iterable[int]) -> Counter[str]:
    """Damaged `model.mjs`, imported by `main.mjs`. What is a script all the same may do what it
    says."""
    sound, counts = (folder / "model.mjs").read_bytes(), Counter[str]()
    for seed in seeds:
        (folder / "model.mjs").write_bytes(mutant(sound, random.Random(seed)))
        done = run(["node", "main.mjs", "in0.bin"], folder)
        assert done.returncode >= 0, f"seed {seed}: {done.stderr}"
        counts["refused" if done.returncode else "taken"] += 1
    (folder / "model.mjs").write_bytes(sound)
    return counts


def run(words: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        words, cwd=folder, capture_output=True, text=True, check=False, timeout=SECONDS,
        errors="replace", env={**os.environ, "ASAN_OPTIONS": "detect_leaks=0"},
    )  # fmt: skip


def _settled(done: subprocess.CompletedProcess[str], seed: int) -> str:
    if done.returncode == 0:
        return "taken"
    assert done.returncode == REFUSED, f"seed {seed}: {done.returncode} {done.stderr}"
    assert len(done.stderr.splitlines()) == 1, f"seed {seed}: {done.stderr}"
    assert done.stderr.startswith("error: "), f"seed {seed}: {done.stderr}"
    return "refused"
