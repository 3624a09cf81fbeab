"""Modules of open sizes: one instance in node serves sizes one after the other, and says in a line
what it was not compiled for."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import numpy as np
import pytest

import autotune
from autotune.cli import execute
from autotune.export.write import ExportOptions, export_image
from autotune.runtime.sized import SizedModel
from tests.needs import require
from tests.unit.export.test_open_export import RANGES, SIZES, image_of, network, reference

NAMES = ("image", "part", "classes")
RUN = """
import { readFileSync, writeFileSync } from "node:fs";
import { load } from "./model.mjs";
const model = await load(), said = [];
const tried = (act) => { try { act(); } catch (error) { said.push(error.message); } };
const x = (n) => new Float32Array(new Uint8Array(readFileSync(`x${n}.bin`)).buffer);
tried(() => model.run({ x: x(0) }));
for (const sizes of [{ N: 5, H: 8, W: 8 }, { N: 1, H: 12, W: 8 }, { N: 1, H: 8 },
                     { N: 1, H: 8, W: 8, Q: 1 }, undefined]) tried(() => model.resize(sizes));
const shapes = SIZES.map(([N, H, W], n) => {
  model.resize({ N, H, W });
  const outputs = model.run({ x: x(n) });
  for (const { name } of model.outputs) writeFileSync(`${name}${n}.bin`, outputs[name]);
  return model.outputs.map(({ shape }) => shape);
});
tried(() => model.resize({ N: 9, H: 8, W: 8 }));
console.log(JSON.stringify({ said, shapes }));
"""


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("open-wasm")
    model = autotune.compile(network(folder), ranges=RANGES, target="wasm32")
    assert isinstance(model, SizedModel)
    export_image(model.image, folder, ExportOptions(format="wasm"))
    return folder


def test_an_instance_serves_sizes_one_after_the_other(exported: Path) -> None:
    require("node")
    inputs = [image_of(sizes) for sizes in SIZES]
    for number, x in enumerate(inputs):
        x.tofile(exported / f"x{number}.bin")
    (exported / "run.mjs").write_text(RUN.replace("SIZES", json.dumps(SIZES)))
    done = subprocess.run(
        ["node", "run.mjs"], cwd=exported, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    for number, x in enumerate(inputs):
        wanted = reference(exported / "small.onnx", x)
        assert told["shapes"][number] == [list(array.shape) for array in wanted]
        for name, array in zip(NAMES, wanted, strict=True):
            found = np.fromfile(exported / f"{name}{number}.bin", np.float32)
            np.testing.assert_allclose(found.reshape(array.shape), array, rtol=1e-4, atol=1e-5)
    unsized = "the model's sizes are open; call resize({ N: 1, H: 8, W: 8 }) before run"
    assert told["said"] == [
        unsized,
        "size N: expected 1 to 4 in steps of 1, got 5",
        "size H: expected 8 to 64 in steps of 8, got 12",
        "size W: expected 8 to 64 in steps of 8, got nothing",
        "size Q: the model has N, H, W",
        "size N: expected 1 to 4 in steps of 1, got nothing",
        "size N: expected 1 to 4 in steps of 1, got 9",
    ]


def test_the_program_takes_sizes_and_the_module_says_what_it_is(
    exported: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    require("node")
    image_of((2, 16, 8)).tofile(exported / "x.bin")
    command = ["node", "main.mjs", "x.bin", "-o", "image.bin", "part.bin", "classes.bin"]
    for sizes, line in (
        (("N=2", "H=16", "W=8"), ""),
        (("N=2", "H=16"), "error: --size: size W: expected 8 to 64 in steps of 8, got nothing"),
        (("N=2", "H=16", "W=16"), "error: x.bin: expected 6144 bytes, got 3072"),
        (("N=two",), "error: --size: expected a number of at least 1"),
    ):
        words = [word for size in sizes for word in ("--size", size)]
        done = subprocess.run(
            [*command, *words], cwd=exported, capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stderr.strip()) == (2 if line else 0, line)
    assert 'resize(sizes: { "N": number' in (exported / "model.d.mts").read_text()
    assert execute(["inspect", str(exported / "model.wasm"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["target"] == "wasm32"
