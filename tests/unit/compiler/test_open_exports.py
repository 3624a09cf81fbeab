"""What exporters write of open sizes: one program, with ONNX Runtime as the judge."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import autotune
from autotune.runtime.sized import SizedModel
from autotune.types import Array

KINDS = {np.dtype(np.float32): TensorProto.FLOAT, np.dtype(np.int64): TensorProto.INT64}
node = helper.make_node


def weights(*shape: int) -> Array:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def numbers(*values: int) -> Array:
    return np.array(values, np.int64)


def check(
    nodes: list[onnx.NodeProto],
    shape: list[Any],
    constants: dict[str, Array],
    ranges: Mapping[str, tuple[int, ...]],
    *,
    given: type = np.float32,
    made: type = np.float32,
) -> SizedModel:
    """From x to y, at both ends of the ranges and two sizes between."""
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", KINDS[np.dtype(given)], shape)],
        [helper.make_tensor_value_info("y", KINDS[np.dtype(made)], None)],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    compiled = autotune.compile(model, ranges=ranges, threads=1)  # type: ignore[arg-type]
    assert isinstance(compiled, SizedModel)
    assert compiled.serves_all, compiled.notes
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    rng = np.random.default_rng(1)
    for share in (0.0, 1.0, 0.3, 0.61):
        sizes = {name: sized(allowed, share) for name, allowed in ranges.items()}
        drawn = rng.standard_normal([sizes.get(d, d) for d in shape])
        x: Array = (drawn * (1 if given is np.float32 else 3)).astype(given)
        (want,) = session.run(None, {"x": x})
        np.testing.assert_allclose(
            compiled.run({"x": x})["y"], want, rtol=1e-4, atol=1e-5, err_msg=str(sizes)
        )
    return compiled


def sized(allowed: tuple[int, ...], share: float) -> int:
    """The size so far up a range."""
    least, most, *steps = allowed
    step = steps[0] if steps else 1
    return least + int((most - least) * share) // step * step


def extent(name: str) -> list[onnx.NodeProto]:
    """The extent of x along the axis in `{name}_axis`, as a tensor of one element."""
    return [
        node("Shape", ["x"], [f"{name}_shape"]),
        node("Gather", [f"{name}_shape", f"{name}_axis"], [name]),
    ]


def test_images_padded_to_windows_and_rolled() -> None:
    """As Swin does: rows up to a multiple of 7, rolled, in windows, normalized, put together."""
    nodes = [
        *extent("h"),
        node("Neg", ["h"], ["less"]),
        node("Mod", ["less", "seven"], ["lack"]),
        node("Concat", ["zero", "zero", "zero", "zero", "lack", "zero"], ["pads"], axis=0),
        node("Pad", ["x", "pads"], ["padded"]),
        node("Shape", ["padded"], ["padded_shape"]),
        node("Gather", ["padded_shape", "one"], ["rows"]),
        node("Mod", ["three", "rows"], ["shift"]),
        node("Slice", ["padded", "shift", "rows", "one"], ["low"]),
        node("Slice", ["padded", "zero", "shift", "one"], ["high"]),
        node("Concat", ["low", "high"], ["rolled"], axis=1),
        node("Reshape", ["rolled", "windows"], ["cut"]),
        node("LayerNormalization", ["cut", "gain"], ["normal"]),
        node("Concat", ["minus", "rows", "eight"], ["back"], axis=0),
        node("Reshape", ["normal", "back"], ["whole"]),
        node("Slice", ["whole", "zero", "h", "one"], ["y"]),
    ]
    constants = {
        "h_axis": numbers(1), "zero": numbers(0), "one": numbers(1), "three": numbers(3),
        "seven": numbers(7), "eight": numbers(8), "minus": numbers(-1),
        "windows": numbers(-1, 7, 8), "gain": weights(8),
    }  # fmt: skip
    check(nodes, ["N", "H", 8], constants, {"N": (1, 3), "H": (4, 40)})


def test_mirrored_up_to_a_multiple() -> None:
    nodes = [
        *extent("h"),
        node("Neg", ["h"], ["less"]),
        node("Mod", ["less", "eight"], ["lack"]),
        node("Concat", ["zero", "zero", "zero", "lack"], ["pads"], axis=0),
        node("Pad", ["x", "pads"], ["padded"], mode="reflect"),
        node("Reshape", ["padded", "pieces"], ["cut"]),
        node("ReduceMean", ["cut"], ["y"], axes=[2]),
    ]
    constants = {
        "h_axis": numbers(1), "zero": numbers(0), "eight": numbers(8), "pieces": numbers(3, -1, 8)
    }  # fmt: skip
    check(nodes, [3, "H"], constants, {"H": (9, 50)})


@pytest.mark.parametrize(
    ("mode", "coordinate", "factor"),
    [
        ("linear", "pytorch_half_pixel", 0.5),
        ("nearest", "asymmetric", 0.5),
        ("linear", "half_pixel", 0.75),
    ],
)
def test_resized_by_a_factor_that_odd_images_do_not_have(
    mode: str, coordinate: str, factor: float
) -> None:
    how = {"mode": mode, "coordinate_transformation_mode": coordinate, "nearest_mode": "floor"}
    constants = {"factors": np.array([1, 1, factor, factor], np.float32)}
    nodes = [node("Resize", ["x", "", "factors"], ["y"], **how)]
    check(nodes, [1, 2, "H", 9], constants, {"H": (4, 23)})


def test_places_that_count_down() -> None:
    """Relative positions, as conformers have them: from T - 1 down to 1 - T."""
    nodes = [
        *extent("t"),
        node("Squeeze", ["t"], ["n"]),
        node("Sub", ["n", "one"], ["first"]),
        node("Neg", ["n"], ["behind"]),
        node("Range", ["first", "behind", "minus"], ["places"]),
        node("Cast", ["places"], ["angles"], to=TensorProto.FLOAT),
        node("Cos", ["angles"], ["waves"]),
        node("ReduceSum", ["x", "axes"], ["sums"], keepdims=1),
        node("Mul", ["sums", "waves"], ["y"]),
    ]
    constants = {
        "t_axis": numbers(1), "one": np.array(1), "minus": np.array(-1), "axes": numbers(1)
    }  # fmt: skip
    check(nodes, ["N", "T"], constants, {"N": (1, 2), "T": (1, 30)})


@pytest.mark.parametrize("largest", [0, 1])
def test_integers_in_order(largest: int) -> None:
    nodes = [node("TopK", ["x", "count"], ["top", "y"], largest=largest)]
    ranges = {"N": (1, 3), "T": (3, 40)}
    check(nodes, ["N", "T"], {"count": numbers(3)}, ranges, given=np.int64, made=np.int64)


def test_attention_over_sequences_that_lie_across_batches() -> None:
    """As PyTorch's layers do: [S, N, width], so that rows of keys are as far apart as a run says;
    masked, and of fewer keys than pay for blocks where their number is known."""
    nodes = [
        node("Transpose", ["x"], ["across"], perm=[1, 0, 2]),
        node("MatMul", ["across", "w"], ["q"]),
        node("MatMul", ["across", "v"], ["k"]),
        node("Transpose", ["q"], ["queries"], perm=[1, 0, 2]),
        node("Transpose", ["k"], ["keys"], perm=[1, 2, 0]),
        node("MatMul", ["queries", "keys"], ["scores"]),
        node("ReduceMax", ["x"], ["most"], axes=[2], keepdims=0),
        node("Unsqueeze", ["most", "one"], ["mask"]),
        node("Add", ["scores", "mask"], ["masked"]),
        node("Softmax", ["masked"], ["shares"], axis=-1),
        node("MatMul", ["shares", "x"], ["y"]),
    ]
    constants = {"w": weights(8, 8), "v": weights(8, 8), "one": numbers(1)}
    check(nodes, ["N", "S", 8], constants, {"N": (1, 4), "S": (1, 50)})


@pytest.mark.parametrize("time", [0, 1])
def test_sequences_turned_around(time: int) -> None:
    """Each up to a length of its own, which the run finds."""
    nodes = [
        node("ReduceMax", ["x"], ["most"], axes=[time, 2], keepdims=0),
        node("Abs", ["most"], ["far"]),
        node("Cast", ["far"], ["whole"], to=TensorProto.INT64),
        node("Add", ["whole", "one"], ["lengths"]),
        node("ReverseSequence", ["x", "lengths"], ["y"], time_axis=time, batch_axis=1 - time),
    ]
    shape: list[Any] = ["T", "N", 3] if time == 0 else ["N", "T", 3]
    check(nodes, shape, {"one": numbers(1)}, {"N": (1, 4), "T": (8, 20)})


def test_rows_picked_in_every_batch() -> None:
    """The last and the first but one of each sequence, by GatherND with a batch."""
    nodes = [
        node("ReduceMax", ["x"], ["most"], axes=[1, 2], keepdims=1),
        node("Mul", ["most", "nothing"], ["zeros"]),
        node("Cast", ["zeros"], ["whole"], to=TensorProto.INT64),
        node("Add", ["whole", "chosen"], ["places"]),
        node("GatherND", ["x", "places"], ["y"], batch_dims=1),
    ]
    constants = {
        "nothing": np.zeros(1, np.float32), "chosen": numbers(-1, 1).reshape(1, 2, 1)
    }  # fmt: skip
    check(nodes, ["N", "T", 3], constants, {"N": (1, 4), "T": (2, 20)})


def test_squares_whose_length_no_size_makes_have_fast_kernels() -> None:
    """(1 + S) by (1 + S) elements, as of a sequence behind a token of a class."""
    nodes = [
        node("Concat", ["x", "first"], ["all"], axis=0),
        node("Transpose", ["all"], ["row"]),
        node("Mul", ["all", "row"], ["pairs"]),
        node("Softmax", ["pairs"], ["shares"], axis=0),
        node("Transpose", ["shares"], ["y"]),
    ]
    compiled = check(nodes, ["S", 1], {"first": weights(1, 1)}, {"S": (16, 90)})
    assert not [note for note in compiled.notes if "mul of" in note]
