"""The ONNX project's own node tests, for every operator that is imported."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from onnx.backend.test.case.node import collect_testcases

import autotune
from autotune.errors import ModelError
from autotune.frontend.onnx.context import IMPORTERS
from autotune.frontend.onnx.importer import OPSETS
from autotune.graph.interp import run_graph
from autotune.types import DTYPES, Array
from tests.unit.frontend.onnx_models import assert_close, imported

# Inputs that must be constants; the cases feed them from outside.
PARAMETERS: dict[str, tuple[int, ...]] = {
    "Reshape": (1,), "Slice": (1, 2, 3, 4), "Pad": (1, 2, 3), "Expand": (1,), "Tile": (1,),
    "Resize": (1, 2, 3), "Upsample": (1,), "Squeeze": (1,), "Unsqueeze": (1,), "Split": (1,),
    "Range": (0, 1, 2), "ConstantOfShape": (0,), "OneHot": (1, 2), "Trilu": (1,),
    "Dropout": (1, 2),
    "MatMulInteger": (1, 3), "ConvInteger": (1, 2, 3), "QLinearConv": (1, 2, 3, 4, 5, 6, 7, 8),
    "QLinearMatMul": (1, 2, 3, 4, 5, 6, 7), "CumSum": (1,), "TopK": (1,), "NonZero": (0,),
    "LSTM": (4,), "CumProd": (1,), "Compress": (1,), "CenterCropPad": (1,), "Col2Im": (1, 2),
    "MaxUnpool": (2,), "DFT": (1, 2), "STFT": (1, 3), "AffineGrid": (1,),
    "MelWeightMatrix": (0, 1, 2, 3, 4), "HannWindow": (0,), "HammingWindow": (0,),
    "BlackmanWindow": (0,),
}  # fmt: skip

# Without importers: imported as what the standard says they consist of.
FUNCTIONS = ("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss", "SwiGLU")

# How much they give is known to a run only.
COUNTED = ("NonMaxSuppression", "Unique")

# Variants that are refused, by words in the case's name.
REFUSED = (
    "training_dropout", "quantizelinear_blocked_symmetric",
)  # fmt: skip
# Here the cases divide by a fractional size; onnxruntime and we by the size of the output.
FRACTIONAL = (
    "test_resize_downsample_scales_linear_align_corners",
    "test_resize_downsample_scales_cubic_align_corners",
)
# Here places count the elements of another shape than the result's, as they do not after a pool.
ELSEWHERE = ("test_maxunpool_export_with_output_shape",)
# Halves that are rounded to integers: the case has those of float32.
ROUNDED = ("DynamicQuantizeLinear",)


def _cases() -> dict[str, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # numpy's, on the inputs of some cases
        return {case.name: case for case in collect_testcases(None) if _wanted(case)}


def _wanted(case: Any) -> bool:
    node = case.model.graph.node[0]
    imported_ = node.op_type in IMPORTERS or node.op_type in FUNCTIONS
    alone = len(case.model.graph.node) == 1 and imported_
    if not alone or case.model.opset_import[0].version < OPSETS[0] or not case.data_sets:
        return False
    if case.name in FRACTIONAL + ELSEWHERE:
        return False
    arrays = [a for group in case.data_sets[0] for a in group]
    known = all(isinstance(a, np.ndarray | np.generic) and a.dtype.name in DTYPES for a in arrays)
    tensors = all(i.type.HasField("tensor_type") for i in case.model.graph.input)
    return known and tensors and all(a.size for a in arrays)


def _refused(name: str) -> bool:
    return any(word in name for word in REFUSED) and "zero_ratio" not in name


CASES = _cases()


@pytest.mark.parametrize("name", [n for n in CASES if _refused(n)])
def test_refused_case(name: str) -> None:
    case = CASES[name]
    model, _ = _with_parameters(case.model, list(case.data_sets[0][0]))
    with pytest.raises(ModelError, match=r"operator \w+ \(node '.*', opset \d+\)"):
        imported(model)


@pytest.mark.parametrize("name", [n for n in CASES if not _refused(n)])
def test_node_case(name: str) -> None:
    case = CASES[name]
    feeds, expected = case.data_sets[0]
    if case.model.graph.node[0].op_type in COUNTED:
        names = [i.name for i in case.model.graph.input]
        source = case.model.SerializeToString()
        with autotune.compile(source, machine="nominal", fallback=False) as ours:
            found = ours.run(dict(zip(names, map(np.asarray, feeds), strict=True)))
        for array, reference in zip(found.values(), expected, strict=True):
            np.testing.assert_array_equal(array, reference)
        return
    model, inputs = _with_parameters(case.model, list(feeds))
    rounded = model.graph.node[0].op_type in ROUNDED
    outputs = run_graph(imported(model), inputs, "float32" if rounded else "float64")
    expected = expected[: len(model.graph.output)]
    for (output, array), reference in zip(outputs.items(), expected, strict=True):
        assert_close(array, np.asarray(reference), 1e-4, output)


def _with_parameters(
    source: onnx.ModelProto, arrays: list[Array]
) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """The model with its parameters as initializers and an opset we know, and the other inputs."""
    model = onnx.ModelProto()
    model.CopyFrom(source)
    model.opset_import[0].version = min(model.opset_import[0].version, OPSETS[-1])
    node = model.graph.node[0]
    places = PARAMETERS.get(node.op_type, (1,) if node.op_type.startswith("Reduce") else ())
    names = {node.input[p] for p in places if p < len(node.input)}
    feeds = dict(zip((i.name for i in source.graph.input), map(np.asarray, arrays), strict=True))
    for info in list(model.graph.input):
        if info.name in names:
            model.graph.initializer.append(
                numpy_helper.from_array(feeds.pop(info.name), info.name)
            )
            model.graph.input.remove(info)
        else:
            del info.type.tensor_type.shape.dim[:]
            for extent in feeds[info.name].shape:
                info.type.tensor_type.shape.dim.add(dim_value=extent)
    return model, feeds
