"""Windows over images and volumes of open sizes: pads that a size decides, means over what a
window sees, depths, and zeros beside arrays of the caller's; transforms of open lengths."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper

import autotune
from autotune.compiler.further_programs import FurtherPrograms
from autotune.frontend.onnx.importer import import_model
from autotune.placement.partition import partition
from autotune.runtime.sized import SizedModel
from autotune.size_ranges import SizeRange
from autotune.sizes import symbol
from tests.unit.compiler.open_models import FLOAT, model_of, weight
from tests.unit.compiler.test_open_exports import check, numbers, weights

node = helper.make_node
IMAGES = {"N": (1, 2), "H": (5, 40), "W": (5, 40)}


@pytest.mark.parametrize(
    "auto_pad", ["SAME_UPPER", pytest.param("SAME_LOWER", marks=pytest.mark.slow)]
)
def test_pads_that_what_is_left_of_a_stride_decides(auto_pad: str) -> None:
    """Convolution, largest elements and means, one behind the other, of any size."""
    how = {"auto_pad": auto_pad, "strides": [2, 2]}
    nodes = [
        node("Conv", ["x", "w"], ["a"], **how),
        node("MaxPool", ["a"], ["b"], kernel_shape=[3, 3], **how),
        node("AveragePool", ["b"], ["y"], kernel_shape=[3, 2], **how),
    ]
    check(nodes, ["N", 3, "H", "W"], {"w": weights(8, 3, 5, 4)}, IMAGES)


@pytest.mark.parametrize("counted", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_means_of_windows_that_reach_over_the_edge(counted: int) -> None:
    """Their number of elements differs at the edges alone: a vector for rows, one for columns."""
    pool = node(
        "AveragePool", ["a"], ["y"], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 0, 1],
        ceil_mode=1, count_include_pad=counted,
    )  # fmt: skip
    nodes = [node("Conv", ["x", "w"], ["a"]), pool]
    made = check(nodes, ["N", 3, "H", "W"], {"w": weights(8, 3, 1, 1)}, IMAGES)
    assert not [note for note in made.notes if "plain loops" in note]


@pytest.mark.parametrize(
    ("kernel", "options"),
    [
        ((3, 3, 3), {"pads": [1] * 6}),
        ((3, 1, 1), {"pads": [1, 0, 0, 1, 0, 0], "strides": [2, 1, 1]}),
        ((3, 3, 3), {"auto_pad": "SAME_UPPER", "strides": [2, 2, 2]}),
    ],
)
def test_volumes_of_any_depth(kernel: tuple[int, ...], options: dict[str, object]) -> None:
    nodes = [node("Conv", ["x", "w"], ["y"], **options)]
    volumes = {"N": (1, 2), "D": (3, 9), "H": (4, 12), "W": (4, 12)}
    made = check(nodes, ["N", 1, "D", "H", "W"], {"w": weights(4, 1, *kernel) / 8}, volumes)
    assert not [note for note in made.notes if "plain loops" in note]


def test_doubled_volumes() -> None:
    """What is woven together is joined to images again, in strips."""
    nodes = [
        node("ConvTranspose", ["x", "w"], ["a"], strides=[2, 2, 2]),
        node("Conv", ["a", "v"], ["y"], pads=[1] * 6),
    ]
    constants = {"w": weights(2, 1, 2, 2, 2) / 4, "v": weights(3, 1, 3, 3, 3) / 8}
    volumes = {"N": (1, 2), "D": (2, 5), "H": (2, 8), "W": (2, 8)}
    check(nodes, ["N", 2, "D", "H", "W"], constants, volumes)


def test_zeros_lie_around_a_copy_of_what_a_caller_has() -> None:
    """Strips are the same everywhere, so they do not ask where an image ends."""
    nodes = [node("Conv", ["x", "w"], ["y"], pads=[1] * 4)]
    proto = model_of(
        nodes, {"x": (FLOAT, [1, 1, "H", "W"])}, [1, 8, "H", "W"], [weight("w", 8, 1, 3, 3)]
    )
    sizes = (1, 1, symbol("H", 8, 64), symbol("W", 8, 64))
    ops = [call.task.op for call in partition(import_model(proto, {"x": sizes})).calls]
    assert ops[0] == "copy"
    assert "conv2d" in ops
    fixed = partition(import_model(proto, {"x": (1, 1, 32, 32)}))
    assert "copy" not in [call.task.op for call in fixed.calls]


@pytest.mark.parametrize(
    ("inverse", "half"),
    [
        pytest.param(0, 1, marks=pytest.mark.slow),
        pytest.param(1, 0, marks=pytest.mark.slow),
        (1, 1),
    ],
)
def test_transforms_of_any_length(inverse: int, half: int) -> None:
    parts = 2 if inverse else 1
    options = {"inverse": inverse, "onesided": half}
    proto = helper.make_model(
        helper.make_graph(
            [node("DFT", ["x", "", "axis"], ["y"], **options)],
            "net",
            [helper.make_tensor_value_info("x", FLOAT, [2, "T", parts])],
            [helper.make_tensor_value_info("y", FLOAT, None)],
            [helper.make_tensor("axis", 7, [], numbers(1))],
        ),
        opset_imports=[helper.make_opsetid("", 20)],
        ir_version=9,
    )
    compiled = autotune.compile(proto, ranges={"T": (2, 90)}, threads=1)
    assert isinstance(compiled, SizedModel)
    assert compiled.serves_all, compiled.notes
    rng = np.random.default_rng(0)
    for length in (2, 3, 17, 64, 90):
        x = rng.standard_normal((2, length, parts)).astype(np.float32)
        z = x[..., 0] + (1j * x[..., 1] if inverse else 0)
        if inverse and half:
            want = np.fft.irfft(z, 2 * (length - 1), axis=1)[..., None]
        else:
            found = np.fft.ifft(z, axis=1) if inverse else np.fft.rfft(z, axis=1)
            want = np.stack([found.real, found.imag], 2)
        np.testing.assert_allclose(compiled.run({"x": x})["y"], want, atol=2e-5)


def test_both_sides_of_a_branch_that_a_size_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first program is for one side; the second size on the other makes one for that."""
    several = [
        helper.make_graph(nodes, "g", [], [helper.make_tensor_value_info(name, FLOAT, None)])
        for name, nodes in (
            ("long", [node("Mul", ["x", "x"], ["long"])]),
            ("short", [node("Neg", ["x"], ["short"])]),
        )
    ]  # fmt: skip
    nodes = [
        node("Shape", ["x"], ["s"], start=1),
        node("Greater", ["s", "most"], ["is_long"]),
        node("If", ["is_long"], ["a"], then_branch=several[0], else_branch=several[1]),
        node("Relu", ["a"], ["y"]),
    ]
    most = helper.make_tensor("most", 7, [1], [32])
    proto = model_of(nodes, {"x": (FLOAT, [3, "T"])}, [3, "T"], [most])
    compiled = autotune.compile(proto, ranges={"T": (2, 100)}, threads=1)
    assert isinstance(compiled, SizedModel)
    alone, made = compiled._specialize, list[object]()

    def counted(sizes: object, kept: object) -> object:
        made.append(sizes)
        return alone(sizes, kept)  # type: ignore[misc, arg-type]

    monkeypatch.setattr(compiled, "_specialize", counted)
    for size in (100, 33, 32, 7, 2, 20, 60):
        x = np.random.default_rng(size).standard_normal((3, size)).astype(np.float32)
        want = np.maximum(x * x if size > 32 else -x, 0)
        np.testing.assert_allclose(compiled.run({"x": x})["y"], want, rtol=1e-6)
    assert made == [{"T": 32}]


def test_sizes_between_steps_make_no_further_program() -> None:
    """A program of the same range would not be for them, either."""
    made: list[object] = []
    every, even = SizeRange(least=1, most=100), SizeRange(least=2, most=100, step=2)
    model: Any = None
    make: Any = made.append
    further = FurtherPrograms(model, {"T": every}, {"T": even}, make)
    assert [further({"T": size}) for size in (15, 17, 19)] == [None] * 3
    assert not made
