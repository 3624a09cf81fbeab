"""Damaged files of every kind given to what loads them: none ends a process, each gives one line.

    python benchmarks/deployment/fuzzed_files.py [--count 10000] [--processes 2] [--seed 0]

Kinds: saved models of fixed and of open sizes, with the whole package and with the wheel that
needs numpy alone; the same with parts exchanged, and with wrong manifests whose checksums fit;
exported libraries, objects and C as `inspect` reads them; `model.weights` as C maps it, in
programs built with AddressSanitizer and UndefinedBehaviorSanitizer; `model.wasm` and `model.mjs`
in node.

Out: a line for each kind: how many were refused, and how many were taken and computed what the
sound file does (of weights, which are not checked byte by byte: ran). A crash, a hang, an
exception or other results end the program with the seed. `--count` is of every kind (of scripts
and of weights, each a process, a tenth).
"""

from __future__ import annotations

import argparse
import json
import os
import runpy
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import autotune
from autotune.export.runtime_wheel import runtime_wheel
from autotune.export.write import WASM, ExportOptions, export_image, source_target
from autotune.target import load_target
from tests.unit.export import mutant_programs

ROOT = Path(__file__).resolve().parents[2]
LOADS = "tests.unit.export.mutant_loads"
CHUNK = 500
"""Files that one process loads."""
RANGES = {"batch": (1, 16), "height": (8, 64), "width": (8, 64)}
INPUT_BYTES = 12288
"""Bytes of zoo:tiny's input."""
SEALED = {"shared": "libmodel.so", "static": "libmodel.a", "object": "model.o"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    seeds = range(options.seed, options.seed + options.count)
    with tempfile.TemporaryDirectory() as place, ThreadPoolExecutor(options.processes) as pool:
        made = prepared(Path(place))
        print("| kind | refused | taken |\n| --- | --- | --- |", flush=True)
        for name, (load, share) in made.items():
            wanted = seeds[: max(1, len(seeds) // share)]
            chunks = [wanted[at : at + CHUNK] for at in range(0, len(wanted), CHUNK)]
            counts = sum(pool.map(load, chunks), Counter[str]())
            print(f"| {name} | {counts['refused']} | {counts['taken']} |", flush=True)


Load = Callable[[range], Counter[str]]


def prepared(folder: Path) -> dict[str, tuple[Load, int]]:
    """By the name of a kind, what loads a chunk of seeds, and which share of them it is given."""
    tiny = autotune.compile("zoo:tiny")
    tiny.save(folder / "fixed.model")
    with mock.patch("sys.argv", ["open_model.py", str(folder / "open.onnx")]):
        runpy.run_path(str(ROOT / "examples/deploy/open_model.py"), run_name="__main__")
    autotune.compile(folder / "open.onnx", ranges=RANGES).save(folder / "open.model")
    name, wheel = runtime_wheel()
    (folder / name).write_bytes(wheel)
    out: dict[str, tuple[Load, int]] = {}
    for model in ("fixed", "open"):
        path = folder / f"{model}.model"
        for kind in ("artifact", "exchanged", "respelt"):
            out[f"{kind}, {model} sizes"] = (in_python(kind, path), 1)
        bundle = in_python("artifact", path, beside=folder / name)
        out[f"artifact by the wheel, {model} sizes"] = (bundle, 1)
    for form, library in SEALED.items():
        export_image(tiny.image, folder / form, ExportOptions(format=form))
        out[library] = (in_python("sealed", folder / form / library), 1)
    source = autotune.compile("zoo:tiny", target=source_target(load_target("c")))
    export_image(source.image, folder / "c", ExportOptions(format="c"))
    out["model.c"] = (in_python("sealed", folder / "c" / "model.c"), 1)
    return out | programs(folder)


def programs(folder: Path) -> dict[str, tuple[Load, int]]:
    """Kinds that are loaded without Python."""
    tiny, web = autotune.compile("zoo:tiny"), autotune.compile("zoo:tiny", target=WASM)
    mapped, pages = folder / "mapped", folder / "pages"
    export_image(tiny.image, mapped, ExportOptions(format="object", weights="file"))
    export_image(web.image, pages, ExportOptions(format="wasm"))
    for place in (mapped, pages):
        (place / "in0.bin").write_bytes(bytes(INPUT_BYTES))
    mutant_programs.sanitized(mapped)
    return {
        "model.weights in C": (apart(mutant_programs.weights, mapped), 10),
        "model.wasm in node": (apart(mutant_programs.modules, pages), 1),
        "model.mjs in node": (apart(mutant_programs.scripts, pages), 10),
    }


def in_python(kind: str, sound: Path, beside: Path | None = None) -> Load:
    """A chunk in a process of its own; `beside`: the wheel that it has in place of the package."""

    def load(seeds: range) -> Counter[str]:
        paths = [*([str(beside)] if beside else []), str(ROOT)]
        with tempfile.TemporaryDirectory() as place:
            done = subprocess.run(
                [sys.executable, "-P", "-m", LOADS, kind, str(sound), place, str(seeds[0]),
                 str(len(seeds))],
                capture_output=True, text=True, check=False,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
            )  # fmt: skip
            if done.returncode:
                seed = (Path(place) / "seed").read_text()
                raise SystemExit(f"{kind}, seed {seed}: {done.returncode}\n{done.stderr[-2000:]}")
        return Counter(json.loads(done.stdout))

    return load


def apart(load: Callable[[Path, Iterable[int]], Counter[str]], sound: Path) -> Load:
    """A chunk in a copy of the folder."""

    def in_copy(seeds: range) -> Counter[str]:
        with tempfile.TemporaryDirectory() as place:
            subprocess.run(["cp", "-r", f"{sound}/.", place], check=True)
            return load(Path(place), seeds)

    return in_copy


if __name__ == "__main__":
    main()
