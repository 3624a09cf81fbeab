"""Whole TensorFlow Lite models: compiled, exported as C, refused in a line, damaged."""

from __future__ import annotations

import contextlib
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import autotune
from autotune.errors import ModelError, UnsupportedOpError
from autotune.frontend import load_model
from tests.tflite_models import (
    NONE,
    RELU,
    RNG,
    SAME,
    VALID,
    Operator,
    Tensor,
    activation,
    bias,
    constant,
    conv,
    depthwise,
    f,
    floats,
    judged,
    pool,
    q,
    tflite_bytes,
    weights,
)
from tests.unit.frontend.tflite_short_cases import s


def network() -> bytes:
    """Two branches of convolutions, their sum, a mean, a layer, a softmax."""
    x, a, b, c = q(1, 12, 9, 3), q(1, 6, 5, 8, scale=0.1, zero=-128), q(1, 6, 5, 8), q(1, 6, 5, 8)
    mean, row = q(1, 1, 1, 8), q(1, 8)
    logits, out = q(1, 6, scale=0.2, zero=9), q(1, 6, scale=1 / 256, zero=-128)
    full = activation("FullyConnectedOptions", NONE)
    operators = [
        Operator(name="CONV_2D", inputs=[x, weights(8, 3, 3, 3), bias(8)], outputs=[a],
                 options=conv(2, SAME, RELU)),
        Operator(name="DEPTHWISE_CONV_2D", inputs=[a, weights(1, 3, 3, 8, axis=3), bias(8)],
                 outputs=[b], options=depthwise(1, SAME)),
        Operator(name="ADD", inputs=[a, b], outputs=[c], options=activation("AddOptions", RELU)),
        Operator(name="MEAN", inputs=[c, constant([1, 2])], outputs=[mean],
                 options=("ReducerOptions", {"keepDims": True})),
        Operator(name="RESHAPE", inputs=[mean, constant([1, 8])], outputs=[row],
                 options=("ReshapeOptions", {"newShape": [1, 8]})),
        Operator(name="FULLY_CONNECTED", inputs=[row, weights(6, 8, channels=False), bias(6)],
                 outputs=[logits], options=full),
        Operator(name="SOFTMAX", inputs=[logits], outputs=[out],
                 options=("SoftmaxOptions", {"beta": 1.0})),
    ]  # fmt: skip
    return tflite_bytes(operators, [x], [out, c])


def short_network() -> bytes:
    """Layers of int16 by weights of int8, from bytes and back to them."""
    x, a, b, c = q(1, 12, 9, 3), s(1, 12, 9, 3), s(1, 6, 5, 8, scale=0.01), s(1, 6, 5, 8)
    mean, row = s(1, 1, 1, 8), s(1, 8)
    logits, power, out = (
        s(1, 6, scale=0.0003), s(1, 6, scale=1 / 32768), q(1, 6, scale=1 / 256, zero=-128)
    )  # fmt: skip
    operators = [
        Operator(name="QUANTIZE", inputs=[x], outputs=[a], options=("QuantizeOptions", {})),
        Operator(name="CONV_2D", outputs=[b], options=conv(2, SAME, RELU),
                 inputs=[a, weights(8, 3, 3, 3), constant(range(8), "int64")]),
        Operator(name="DEPTHWISE_CONV_2D", outputs=[c], options=depthwise(1, SAME),
                 inputs=[b, weights(1, 3, 3, 8, axis=3), constant(range(8), "int64")]),
        Operator(name="AVERAGE_POOL_2D", inputs=[c], outputs=[mean], options=pool(5, 5, VALID)),
        Operator(name="RESHAPE", inputs=[mean, constant([1, 8])], outputs=[row],
                 options=("ReshapeOptions", {"newShape": [1, 8]})),
        Operator(name="FULLY_CONNECTED", inputs=[row, weights(6, 8, channels=False)],
                 outputs=[logits], options=activation("FullyConnectedOptions", NONE)),
        Operator(name="SOFTMAX", inputs=[logits], outputs=[power],
                 options=("SoftmaxOptions", {"beta": 1.0})),
        Operator(name="QUANTIZE", inputs=[power], outputs=[out],
                 options=("QuantizeOptions", {})),
    ]  # fmt: skip
    return tflite_bytes(operators, [x], [out, c, logits])


def test_models_of_int16_give_the_reference_kernels_numbers() -> None:
    made = short_network()
    compiled = autotune.compile(made, threads=1, machine="nominal")
    for seed in range(5):
        x = np.random.default_rng(seed).integers(-128, 128, (1, 12, 9, 3)).astype(np.int8)
        for got, want in zip(compiled.run({"t0": x}).values(), judged(made, [x]), strict=True):
            np.testing.assert_array_equal(got, want, strict=True)


@pytest.fixture(scope="module")
def model() -> bytes:
    return network()


@pytest.mark.parametrize("threads", [1, 2])
def test_compiled_models_give_the_reference_kernels_bytes(model: bytes, threads: int) -> None:
    compiled = autotune.compile(model, threads=threads, machine="nominal")
    for seed in range(5):
        x = np.random.default_rng(seed).integers(-128, 128, (1, 12, 9, 3)).astype(np.int8)
        got = compiled.run({"t0": x})
        for value, want in zip(got.values(), judged(model, [x]), strict=True):
            np.testing.assert_array_equal(value, want, strict=True)


@pytest.mark.slow
def test_as_c_without_a_warning(model: bytes, tmp_path: Path) -> None:
    file = tmp_path / "small.tflite"
    file.write_bytes(model)
    command = [sys.executable, "-m", "autotune", "export", str(file), "--format", "c", "-o", "out"]
    command += ["--machine", "nominal"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    flags = ["-std=c99", "-O2", "-Wall", "-Wextra", "-pedantic", "-Werror"]
    sources = ["out/main.c", "out/model.c", "-lm", "-o", "main"]
    subprocess.run(["cc", *flags, *sources], cwd=tmp_path, check=True)
    x = np.random.default_rng(7).integers(-128, 128, (1, 12, 9, 3)).astype(np.int8)
    (tmp_path / "in0.bin").write_bytes(x.tobytes())
    run = ["./main", "in0.bin", "-o", "out0.bin", "out1.bin"]
    subprocess.run(run, cwd=tmp_path, check=True, capture_output=True)
    for number, want in enumerate(judged(model, [x])):
        got = np.fromfile(tmp_path / f"out{number}.bin", np.int8).reshape(want.shape)
        np.testing.assert_array_equal(got, want)


def test_refused_in_one_line(tmp_path: Path, model: bytes) -> None:
    with pytest.raises(ModelError, match="there is no such file"):
        load_model(tmp_path / "none.tflite")
    (tmp_path / "text.tflite").write_text("not a model of anything")
    with pytest.raises(ModelError, match="no TensorFlow Lite file"):
        load_model(tmp_path / "text.tflite")
    with pytest.raises(ModelError, match=r"the sizes of a \.tflite file are its own"):
        load_model(model, {"t0": (2, 12, 9, 3)})
    x, y = q(4, 4), q(4, 4)
    unknown = tflite_bytes([Operator(name="WHERE", inputs=[x], outputs=[y])], [x], [y])
    with pytest.raises(UnsupportedOpError, match=r"operator 0 \(WHERE\): it is not supported"):
        load_model(unknown)
    halves = Tensor(shape=(4, 4), dtype="int16", scale=0.1)
    mixed = Operator(name="ADD", inputs=[x, halves], outputs=[y],
                     options=activation("AddOptions"))  # fmt: skip
    with pytest.raises(UnsupportedOpError, match="int8, int16 together"):
        load_model(tflite_bytes([mixed], [x, halves], [y]))
    wrong = Operator(name="MAX_POOL_2D", inputs=[q(1, 4, 4, 2)], outputs=[y],
                     options=pool(2, 2, VALID))  # fmt: skip
    with pytest.raises(ModelError, match="it gives uint8"):
        load_model(tflite_bytes([wrong], wrong.inputs, [y]))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("dtype", "message"),
    [
        ("uint8", "convert the model with full integer"),
        ("int16", "a bias of int32 beside int16 is not supported; expected int64"),
        ("uint16", "convert the model with full integer"),
    ],
)
def test_activations_of_other_types_are_refused_in_one_line(dtype: str, message: str) -> None:
    x, y = (Tensor(shape=(1, 6, 6, 4), dtype=dtype, scale=0.05) for _ in range(2))
    layer = Operator(name="CONV_2D", inputs=[x, weights(4, 3, 3, 4), bias(4)], outputs=[y],
                     options=conv(1, SAME, NONE))  # fmt: skip
    with pytest.raises(UnsupportedOpError, match=message) as error:
        load_model(tflite_bytes([layer], [x], [y]))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["SQUARE", "CUMSUM", "SQRT", "REDUCE_PROD"])
def test_bytes_with_scales_are_refused_where_only_numbers_are_known(name: str) -> None:
    x, y = q(1, 6, 6, 4), q(1, 12, 12, 4)
    with pytest.raises(UnsupportedOpError, match="of int8 with scales is not supported") as error:
        load_model(tflite_bytes([Operator(name=name, inputs=[x], outputs=[y])], [x], [y]))
    assert "\n" not in str(error.value)


def small_weights() -> bytes:
    """A convolution whose weights are float16, and a layer of a sparse matrix of them."""
    half = constant(RNG.standard_normal((8, 3, 3, 3)), "float16")
    kept = RNG.standard_normal((6, 8)) * (RNG.random((6, 8)) < 0.4)
    sparse = constant(kept, "float16", block=(1, 1))
    x, wide, a = f(1, 12, 9, 3), f(8, 3, 3, 3), f(1, 12, 9, 8)
    whole, matrix = Tensor(shape=(6, 8), dtype="float16"), f(6, 8)
    mean, y = f(1, 8), f(1, 6)
    operators = [
        Operator(name="DEQUANTIZE", inputs=[half], outputs=[wide],
                 options=("DequantizeOptions", {})),
        Operator(name="CONV_2D", inputs=[x, wide, floats(8)], outputs=[a],
                 options=conv(1, SAME, RELU)),
        Operator(name="MEAN", inputs=[a, constant([1, 2])], outputs=[mean],
                 options=("ReducerOptions", {"keepDims": False})),
        Operator(name="DENSIFY", inputs=[sparse], outputs=[whole],
                 options=("DensifyOptions", {})),
        Operator(name="DEQUANTIZE", inputs=[whole], outputs=[matrix],
                 options=("DequantizeOptions", {})),
        Operator(name="FULLY_CONNECTED", inputs=[mean, matrix, floats(6)], outputs=[y],
                 options=activation("FullyConnectedOptions", NONE)),
    ]  # fmt: skip
    return tflite_bytes(operators, [x], [y])


def test_weights_of_16_bits_and_sparse_ones() -> None:
    model = small_weights()
    x = np.random.default_rng(3).standard_normal((1, 12, 9, 3)).astype(np.float32)
    compiled = autotune.compile(model)
    (got,) = compiled.run(dict.fromkeys(compiled.inputs, x)).values()
    (want,) = judged(model, [x])
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_a_sparse_matrix_that_memory_would_not_hold_is_refused() -> None:
    sparse = constant(np.eye(4), "float32", block=(1, 1))
    y = f(4, 4)
    densify = Operator(
        name="DENSIFY", inputs=[sparse], outputs=[y], options=("DensifyOptions", {})
    )
    shape = np.array([4, 4], np.int32).tobytes()
    model = tflite_bytes([densify], [], [y])
    assert load_model(model).constants
    with pytest.raises(ModelError, match="more than 2147483648 bytes"):
        load_model(model.replace(shape, np.array([1 << 20, 1 << 20], np.int32).tobytes()))


@pytest.mark.parametrize("made", [network, small_weights])
def test_damaged_files_are_errors(made: Callable[[], bytes]) -> None:
    """Bytes changed, or the end cut off, anywhere."""
    model = made()
    draw = random.Random(0)
    for _ in range(300):
        data = bytearray(model)
        for _ in range(draw.choice((1, 1, 4, 30))):
            data[draw.randrange(8, len(data))] = draw.choice((0, 1, 127, 128, 255))
        if draw.random() < 0.2:
            del data[draw.randrange(8, len(data)) :]
        with contextlib.suppress(ModelError):
            load_model(bytes(data))


@pytest.mark.parametrize("name", ["CONV_2D", "FULLY_CONNECTED"])
def test_biases_of_bytes_are_whole_numbers(name: str) -> None:
    x, y = (q(1, 1, 1, 4), q(1, 1, 1, 4)) if name == "CONV_2D" else (q(1, 4), q(1, 4))
    matrix = weights(4, 1, 1, 4) if name == "CONV_2D" else weights(4, 4, channels=False)
    about = conv(1, SAME, NONE) if name == "CONV_2D" else activation("FullyConnectedOptions", NONE)
    layer = Operator(name=name, inputs=[x, matrix, constant([np.nan] * 4, "float32")],
                     outputs=[y], options=about)  # fmt: skip
    with pytest.raises(ModelError, match="input 2 is of float32; expected whole numbers"):
        load_model(tflite_bytes([layer], [x], [y]))
