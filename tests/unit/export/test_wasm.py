"""Models as WebAssembly: linked here, right in node, small, and one line for what cannot be."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

import autotune
from autotune.cli import execute
from autotune.codegen.wasm import leb
from autotune.codegen.wasm.module import LinkedModule
from autotune.errors import BuildError, ConfigError
from autotune.export.write import ExportOptions, exported_files
from autotune.types import Array
from tests.needs import require
from tests.networks import network

Captured = pytest.CaptureFixture[str]
MOST_BEYOND_WEIGHTS = 200 << 10
ASK = """
import { load } from "./model.mjs";
const model = await load();
const one = { %s: new Float32Array(4) };
try { model.run(one); } catch (error) { console.log(error.message); }
"""


def exported(model: onnx.ModelProto, folder: Path, *more: str) -> Path:
    path = folder / "net.onnx"
    path.write_bytes(model.SerializeToString())
    words = ["export", str(path), "--format", "wasm", "-o", str(folder / "out")]
    assert execute([*words, "--log", str(folder / "no.db"), *more]) == 0
    return folder / "out"


def in_node(out: Path, inputs: list[Array], outputs: int) -> list[bytes]:
    require("node")
    names = [f"in{n}.bin" for n in range(len(inputs))]
    for name, array in zip(names, inputs, strict=True):
        (out / name).write_bytes(array.tobytes())
    files = [f"out{n}.bin" for n in range(outputs)]
    command = ["node", "main.mjs", *names, "-o", *files, "--repeat", "2"]
    done = subprocess.run(command, cwd=out, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "median of 2" in done.stdout
    return [(out / file).read_bytes() for file in files]


def feeds_of(session: onnxruntime.InferenceSession, seed: int = 0) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    feeds = {}
    for port in session.get_inputs():
        shape = [side if isinstance(side, int) else 1 for side in port.shape]
        if "int" in port.type:
            feeds[port.name] = rng.integers(0, 2, shape).astype(np.int64)
        else:
            feeds[port.name] = rng.standard_normal(shape).astype(np.float32)
    return feeds


@pytest.mark.parametrize(
    "name",
    ["tiny", "encoder_small", pytest.param("mobilenetv2", marks=pytest.mark.slow)],
)
def test_a_model_gives_what_onnx_runtime_gives(name: str, tmp_path: Path) -> None:
    model = network(name)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    feeds = feeds_of(session)
    expected = session.run(None, feeds)
    out = exported(model, tmp_path)
    assert (out / "model.wasm").stat().st_size < model.ByteSize() + MOST_BEYOND_WEIGHTS
    found = in_node(out, list(feeds.values()), len(expected))
    for data, array in zip(found, expected, strict=True):
        shaped = np.frombuffer(data, array.dtype).reshape(array.shape)
        np.testing.assert_allclose(shaped, array, rtol=0, atol=1e-4 * max(1, np.abs(array).max()))


def views() -> onnx.ModelProto:
    """Outputs that are not dense where they lie, of two types, and an input that is one."""
    text = """
        <ir_version: 8, opset_import: ["" : 17]>
        views (float[3,4] x, int64[2,3] i)
            => (float[4,3] t, float[3,2] s, int64[2,3] n, float[3,4] e)
        {
            t = Transpose (x)
            begin = Constant <value_ints = [1]> ()
            end = Constant <value_ints = [3]> ()
            axis = Constant <value_ints = [1]> ()
            s = Slice (x, begin, end, axis)
            n = Neg (i)
            e = Erf (x)
        }
    """
    return onnx.parser.parse_model(text)


def test_views_and_integers_come_out_dense(tmp_path: Path) -> None:
    x = np.random.default_rng(1).standard_normal((3, 4)).astype(np.float32)
    i = np.arange(6, dtype=np.int64).reshape(2, 3) - (1 << 40)
    t, s, n, _ = in_node(exported(views(), tmp_path), [x, i], 4)
    np.testing.assert_array_equal(np.frombuffer(t, np.float32).reshape(4, 3), x.T)
    np.testing.assert_array_equal(np.frombuffer(s, np.float32).reshape(3, 2), x[:, 1:3])
    np.testing.assert_array_equal(np.frombuffer(n, np.int64).reshape(2, 3), -i)


def test_relaxed_simd_is_a_target_whose_products_are_added_at_once() -> None:
    fused = b"\xfd\x85\x02"  # f32x4.relaxed_madd
    for name, there in (("wasm32", False), ("wasm32-relaxed", True)):
        image = autotune.compile("zoo:tiny", target=name).image
        assert any(fused in code for code in image.objects) == there


def test_a_module_is_hardly_larger_than_its_weights_and_says_what_it_is(
    tmp_path: Path, capsys: Captured
) -> None:
    image = autotune.compile("zoo:tiny", target="wasm32").image
    files = exported_files(image, ExportOptions(format="wasm"))
    assert set(files) == {"model.wasm", "model.mjs", "model.d.mts", "main.mjs", "sizes.txt"}
    sizes = bytes(files["sizes.txt"]).decode().splitlines()
    told = {line[:32].strip(): int(line[32:]) for line in sizes[1 : sizes.index("")]}
    assert 0 < told["code"] < len(files["model.wasm"])
    assert told["weights"] < told["memory, all in it"]
    assert len(files["model.wasm"]) < image.constants.nbytes + MOST_BEYOND_WEIGHTS
    assert b'"x": Float32Array;' in bytes(files["model.d.mts"])
    path = tmp_path / "model.wasm"
    path.write_bytes(files["model.wasm"])
    assert execute(["inspect", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["digest"] == image.digest()


def test_the_program_refuses_wrong_words_in_a_line(tmp_path: Path) -> None:
    require("node")
    out = exported(network("tiny"), tmp_path)
    (out / "in.bin").write_bytes(bytes(12288))
    for words, line in (
        (["in.bin", "--frequency", "3"], "--frequency: expected --repeat or --threads"),
        (["in.bin", "--threads", "2"], "--threads: the model was compiled for up to 1"),
        (["in.bin", "--repeat", "0"], "--repeat: expected a number of at least 1"),
        (["in.bin", "-o"], "expected 1 files after -o, got 0"),
        (["in.bin", "-o", "none/out.bin"], "none/out.bin: cannot be written (ENOENT)"),
        (["main.mjs"], "main.mjs: expected 12288 bytes"),
    ):
        done = subprocess.run(
            ["node", "main.mjs", *words], cwd=out, capture_output=True, text=True, check=False
        )
        assert done.returncode == 2
        assert done.stderr.startswith(f"error: {line}")
        assert len(done.stderr.splitlines()) == 1


def test_arrays_that_do_not_fit_are_named(tmp_path: Path) -> None:
    require("node")
    out = exported(network("tiny"), tmp_path)
    (out / "ask.mjs").write_text(ASK % "x")
    done = subprocess.run(
        ["node", "ask.mjs"], cwd=out, capture_output=True, text=True, check=False
    )
    assert "input x: expected Float32Array of 3072, got Float32Array of 4" in done.stdout


@pytest.mark.parametrize(
    ("more", "line"),
    [
        (["--threads", "2"], "exported for one thread"),
        (["--weights", "file"], "exported for one thread with its weights inside"),
        (["--target", "cortex-a72"], "takes a model for wasm32"),
    ],
)
def test_what_cannot_be_is_one_line(more: list[str], line: str, capsys: Captured) -> None:
    assert execute(["export", "zoo:tiny", "--format", "wasm", "-o", "out", *more]) == 2
    error = capsys.readouterr().err
    assert line in error


def test_a_model_for_wasm_is_no_library() -> None:
    image = autotune.compile("zoo:tiny", target="wasm32").image
    with pytest.raises(ConfigError, match="wasm32 is for --format wasm"):
        exported_files(image, ExportOptions(format="shared"))


@pytest.mark.parametrize("value", [0, 1, 127, 128, 300, 1 << 31, (1 << 32) - 1])
def test_numbers_come_back(value: int) -> None:
    for data in (leb.number(value), leb.padded(value)):
        assert leb.LebReader(data).number() == value
    assert leb.LebReader(leb.padded_signed(value)).signed() % (1 << 32) == value


def test_what_is_no_object_is_refused() -> None:
    image = autotune.compile("zoo:tiny", target="wasm32").image
    with pytest.raises(BuildError, match="expected a WebAssembly object"):
        LinkedModule([b"\x7fELF"], ["model_entry"])
    with pytest.raises(BuildError, match="ends too early"):
        LinkedModule([image.objects[0][:200]], ["model_entry"])
    with pytest.raises(BuildError, match="no object has the function nothing"):
        LinkedModule(image.objects, ["nothing"])
