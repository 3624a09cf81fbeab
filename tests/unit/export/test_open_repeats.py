"""Exported models whose calls are repeated for the steps of a sequence."""

from __future__ import annotations

import ctypes
import json
import subprocess
from pathlib import Path

import numpy as np

from autotune.export.write import ExportOptions, export_image, source_target
from autotune.runtime.sized import SizedModel
from autotune.target import load_target
from tests.needs import needs, require
from tests.unit.compiler.test_open_recurrent import SIZES, feeds_at, layer, opened
from tests.unit.export.library import Model, pointers
from tests.unit.export.test_open_export import C_FLAGS

LAYER = ("GRU", "bidirectional")
OUTPUTS = ("y", "last h")


def check(compiled: SizedModel, library: Model, tolerance: float) -> None:
    """One instance, sizes in an order that jumps."""
    model, places = layer(*LAYER), list(compiled.ranges)
    code, instance = library.create()
    assert code == 0
    for steps, batch in SIZES:
        feeds = feeds_at(model, steps, batch)
        wanted = compiled.run(feeds)
        sizes = (ctypes.c_int64 * 2)(*({"T": steps, "B": batch}[name] for name in places))
        assert library.function("resize")(instance, sizes) == 0
        found = [np.full(wanted[name].shape, np.nan, np.float32) for name in OUTPUTS]
        assert library.function("run")(instance, pointers([feeds["x"]]), pointers(found)) == 0
        for name, array in zip(OUTPUTS, found, strict=True):
            np.testing.assert_allclose(array, wanted[name], rtol=tolerance, atol=tolerance)


def test_a_library_repeats_calls(tmp_path: Path) -> None:
    compiled = opened(layer(*LAYER))
    export_image(compiled.image, tmp_path, ExportOptions())
    check(compiled, Model(tmp_path / "libmodel.so"), 0)


@needs("cc")
def test_c_repeats_calls(tmp_path: Path) -> None:
    compiled = opened(layer(*LAYER), target=source_target(load_target("c")))
    export_image(compiled.image, tmp_path, ExportOptions(format="c"))
    (tmp_path / "made.c").write_text(MADE)
    subprocess.run(
        ["cc", *C_FLAGS, "-fPIC", "-shared", "model.c", "made.c", "-lm", "-o", "libmodel.so"],
        cwd=tmp_path,
        check=True,
    )
    check(opened(layer(*LAYER)), Model(tmp_path / "libmodel.so"), 1e-5)


MADE = """
#include <stdint.h>
#include "model.h"
int32_t model_create(const void *given, model **made);
int32_t model_create(const void *given, model **made)
{
    static char block[(1 << 20) + 64];
    return model_create_in(block + 64 - (uintptr_t)block % 64, 1 << 20, given, made);
}
"""
"""What a caller does: one block for all sizes."""
RUN = """
import { readFileSync } from "node:fs";
import { load } from "./model.mjs";
const model = await load();
for (const [T, B] of SIZES) {
  model.resize({ T, B });
  const bytes = readFileSync(`x${T}.bin`);
  const outputs = model.run({ x: new Float32Array(new Uint8Array(bytes).buffer) });
  console.log(JSON.stringify(Object.values(outputs).map((o) => Array.from(o))));
}
"""


def test_webassembly_repeats_calls(tmp_path: Path) -> None:
    require("node")
    model = layer(*LAYER)
    compiled = opened(model)
    for_node = opened(model, target="wasm32")
    export_image(for_node.image, tmp_path, ExportOptions(format="wasm"))
    for steps, batch in SIZES:
        feeds_at(model, steps, batch)["x"].tofile(tmp_path / f"x{steps}.bin")
    (tmp_path / "run.mjs").write_text(RUN.replace("SIZES", json.dumps(SIZES)))
    done = subprocess.run(
        ["node", "run.mjs"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    for (steps, batch), line in zip(SIZES, done.stdout.splitlines(), strict=True):
        wanted = compiled.run(feeds_at(model, steps, batch))
        for found, name in zip(json.loads(line), OUTPUTS, strict=True):
            np.testing.assert_allclose(found, wanted[name].ravel(), rtol=1e-4, atol=1e-5)
