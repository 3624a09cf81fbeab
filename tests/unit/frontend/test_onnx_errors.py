"""Models that cannot be imported: one clear error each."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from autotune.errors import ModelError, UnsupportedOpError
from autotune.frontend import load_model
from autotune.frontend.onnx.importer import import_model, import_onnx
from autotune.types import Array
from tests.unit.frontend.onnx_models import floats, ints, node_model, nodes_model


def refused(model: onnx.ModelProto, message: str) -> None:
    with pytest.raises(UnsupportedOpError, match=message):
        import_model(model, {})


def malformed(model: onnx.ModelProto, message: str) -> None:
    with pytest.raises(ModelError, match=message) as error:
        import_model(model, {})
    assert not isinstance(error.value, UnsupportedOpError)


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="there is no file"):
        load_model(str(tmp_path / "none.onnx"))


def test_a_directory(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="cannot be read"):
        import_onnx(tmp_path)


def test_not_a_model_by_its_name() -> None:
    with pytest.raises(ModelError, match=r"expected an .onnx, .tflite or .pt2 file, or zoo:NAME"):
        load_model("model.pt")


def test_unknown_zoo_model() -> None:
    with pytest.raises(ModelError, match=r"no zoo model 'nothing'; the zoo has .*resnet18"):
        load_model("zoo:nothing")


@pytest.mark.parametrize("data", [b"", b"hello, this is not a model", bytes(1000)])
def test_not_an_onnx_file(data: bytes) -> None:
    with pytest.raises(ModelError, match="not an ONNX file, or it is truncated"):
        import_onnx(data)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 0.99])
def test_truncated_file(share: float) -> None:
    data = node_model("MatMul", {"x": floats(2, 64)}, (floats(64, 64),)).SerializeToString()
    with pytest.raises(ModelError, match="truncated"):
        import_onnx(data[: int(len(data) * share)])


def test_truncated_weights() -> None:
    model = node_model("MatMul", {"x": floats(2, 4)}, (floats(4, 4),))
    model.graph.initializer[0].raw_data = b"1234"
    malformed(model, "initializer 'c0'.*do not fit its shape")


def test_unknown_operator() -> None:
    model = node_model("Unheard", {"x": floats(2, 4)})
    refused(model, r"operator Unheard \(node 'node', opset 17\) is not supported; replace it")


def test_operator_of_another_domain() -> None:
    model = node_model("Relu", {"x": floats(2, 4)})
    model.graph.node[0].domain = "com.example"
    refused(model, "of domain 'com.example'")


def test_unknown_attribute() -> None:
    model = node_model("Relu", {"x": floats(2, 4)})
    model.graph.node[0].attribute.append(helper.make_attribute("slope", 2.0))
    refused(model, r"Relu \(node 'node', opset 17\): attribute slope is not supported")


def test_attribute_of_a_wrong_type() -> None:
    malformed(node_model("Softmax", {"x": floats(2, 4)}, axis=[1]), "attribute axis has the value")


@pytest.mark.parametrize(
    ("operator", "inputs"), [("Constant", {}), ("ConstantOfShape", {"x": ints(2)})]
)
def test_a_tensor_attribute_that_is_none(operator: str, inputs: dict[str, Array]) -> None:
    malformed(node_model(operator, inputs, value=3), "attribute value has the value 3")


def test_a_stride_of_nothing() -> None:
    options = {"kernel_shape": [2, 2], "auto_pad": "SAME_UPPER"}
    model = node_model("AveragePool", {"x": floats(1, 1, 4, 4)}, **options)
    model.graph.node[0].attribute.append(helper.make_attribute("strides", [0, 1]))
    malformed(model, r"AveragePool \(node 'node', .* do not fit together")


def test_what_memory_cannot_hold() -> None:
    model = node_model("Pad", {"x": floats(4)}, (ints(0, 2**60),), mode="edge")
    malformed(model, r"operator Pad \(node 'node'")


def test_parameter_that_is_not_constant() -> None:
    model = node_model("Reshape", {"x": floats(2, 4), "shape": ints(8)})
    refused(model, r"input 1 \('shape'\) must be a constant")


def test_output_that_is_not_made() -> None:
    parameters = [np.ones(2, np.float32)] * 4
    model = node_model(
        "BatchNormalization", {"x": floats(1, 2, 3)}, parameters, opset=9, outputs=2
    )
    refused(model, "output 1 of operator BatchNormalization .* is not supported")


def test_unused_extra_output_does_not_matter() -> None:
    parameters = [np.ones(2, np.float32)] * 4
    model = node_model(
        "BatchNormalization", {"x": floats(1, 2, 3)}, parameters, opset=9, outputs=2
    )
    del model.graph.output[1]
    assert import_model(model, {}).outputs[0][0] == "y0"


def test_four_dimensional_images() -> None:
    model = node_model("Conv", {"x": floats(1, 1, 4, 4, 4, 4)}, (floats(1, 1, 2, 2, 2, 2),))
    refused(model, r"only \[N,C,W\], \[N,C,H,W\] and \[N,C,D,H,W\]")


@pytest.mark.parametrize("opset", [6, 29])
def test_opset_outside_what_is_known(opset: int) -> None:
    model = node_model("Relu", {"x": floats(2)})
    model.opset_import[0].version = opset
    malformed(model, f"opset {opset}; supported are 7 to 28: convert")


def test_short_precision() -> None:
    model = node_model("Relu", {"x": floats(2)})
    model.graph.input[0].type.tensor_type.elem_type = TensorProto.FLOAT8E4M3FN
    malformed(model, "X cannot be FLOAT8E4M3FN; cast it to float32")


def test_as_many_boxes_as_the_values_say() -> None:
    feeds = {"boxes": floats(1, 4, 4), "scores": floats(1, 1, 4)}
    refused(node_model("NonMaxSuppression", feeds), "static here; export the model up to")
    refused(node_model("NonZero", {"x": floats(3)}), "static here; export the model up to")
    chosen = {"x": floats(3), "c": np.array([True, False, True])}
    refused(node_model("Compress", chosen, axis=0), "static here; export the model up to")


def test_nodes_out_of_order() -> None:
    nodes = [helper.make_node("Relu", ["a"], ["y"]), helper.make_node("Relu", ["x"], ["a"])]
    malformed(nodes_model(nodes, {"x": floats(2)}, [], ["y"]), "'a', which nothing before it")


def test_operands_that_do_not_fit() -> None:
    model = node_model("MatMul", {"x": floats(2, 3), "w": floats(4, 5)})
    malformed(model, r"operator MatMul \(node 'node'")


def test_shapes_that_do_not_broadcast() -> None:
    model = node_model("Add", {"x": floats(2, 3)}, (floats(4),))
    malformed(model, r"operator Add \(node 'node'")


@pytest.mark.parametrize("operator", ["Relu", "Sum", "Mean", "NonZero"])
def test_missing_input(operator: str) -> None:
    model = node_model(operator, {"x": floats(2)})
    del model.graph.node[0].input[:]
    malformed(model, "input 0 is missing")


def test_reshape_to_another_size() -> None:
    malformed(node_model("Reshape", {"x": floats(2, 3)}, (ints(4, -1),)), "cannot reshape")


def test_what_an_operator_expects_is_said_where_it_is_not_given() -> None:
    model = node_model("LSTM", {"x": floats(3, 4)}, (floats(1, 16, 4),) * 2, hidden_size=4)
    malformed(model, r"LSTM .* must have rank 3; got 3 inputs \(x float32\[3,4\], .*; expected 3 "
                     r"to 8 inputs \(X \[seq_length, batch_size, input_size\], W \[")  # fmt: skip


def test_the_interpreters_words_are_not_said() -> None:
    model = node_model("MatMulNBits", {"x": floats(2, 32)}, (ints(1), floats(1)), K=32, N=8)
    model.graph.node[0].domain = "com.microsoft"
    with pytest.raises(ModelError, match=r"got 3 inputs .* please report this") as error:
        import_model(model, {})
    assert "reshape" not in str(error.value)


@pytest.mark.parametrize("operator", ["MaxPool", "AveragePool", "LpPool"])
@pytest.mark.parametrize("kernel", [[2**31, 1], [2**31, 2**31], [2**13, 2**13]])
def test_a_window_beyond_any_image(operator: str, kernel: list[int]) -> None:
    attrs = {"kernel_shape": kernel, "pads": [k // 2 for k in kernel * 2]}
    malformed(node_model(operator, {"x": floats(1, 1, 4, 4)}, **attrs), "window|kernel of 2147")
    more = {"kernel_shape": [2, 2], "dilations": [2**31, 1], "auto_pad": "SAME_UPPER"}
    if operator == "MaxPool":
        malformed(node_model(operator, {"x": floats(1, 1, 4, 4)}, **more), "dilations of 2147")


@pytest.mark.parametrize("operator", ["ConstantOfShape", "HannWindow", "BlackmanWindow"])
def test_constants_that_nobody_can_hold(operator: str) -> None:
    nodes = [helper.make_node(operator, ["size"], ["y"], name="node")]
    size = numpy_helper.from_array(ints(1 << 36), "size")
    malformed(nodes_model(nodes, {}, [size], ["y"]), "a constant of 68719476736 elements")


def test_a_dimension_of_nothing_is_not_symbolic() -> None:
    model = node_model("Relu", {"x": floats(2, 3)})
    model.graph.input[0].type.tensor_type.shape.dim[1].dim_value = 0
    malformed(model, r"'x' has the shape 2x0: a dimension of no elements.*--shape x=2x1")
    assert import_model(model, {"x": (2, 5)}).inputs[0][1].shape == (2, 5)


def test_a_dimension_that_is_not_said_is_symbolic() -> None:
    model = node_model("Relu", {"x": floats(2, 3)})
    for value in (-1, None):
        dim = model.graph.input[0].type.tensor_type.shape.dim[1]
        dim.Clear()
        if value is not None:
            dim.dim_value = value
        malformed(model, r"'x' has symbolic dimensions 2x\?; pass --shape x=2x1")


def test_what_no_standard_has_is_refused() -> None:
    model = node_model("Relu", {"x": floats(2, 4)})
    model.graph.input[0].type.tensor_type.elem_type = 77
    malformed(model, "input 'x': element type 77 is none that ONNX has")
    model = node_model("Add", {"x": floats(2, 4)}, (floats(4),))
    model.graph.initializer[0].dims[0] = -4
    malformed(model, "initializer 'c0'.*a dimension is negative")
    for operator, padded in (("Conv", {}), ("ConvTranspose", {"pads": [0, 0, 0, 0]})):
        weights = (floats(2, 2, 3, 3),)
        model = node_model(operator, {"x": floats(1, 2, 8, 8)}, weights, auto_pad="SOME", **padded)
        malformed(model, "auto_pad is 'SOME'; expected one of NOTSET, SAME_UPPER")


def test_an_output_declared_another_type_than_it_has() -> None:
    model = node_model("Relu", {"x": floats(2, 4)})
    model.graph.output[0].type.tensor_type.elem_type = TensorProto.INT64
    malformed(model, "is declared INT64, what makes it gives float32")


def test_an_operator_s_name_is_shown_without_what_a_terminal_obeys() -> None:
    model = node_model("Un\x1b[2J\nheard", {"x": floats(2, 4)})
    refused(model, r"operator Un\\x1b\[2J\\nheard ")


@pytest.mark.parametrize(
    ("operator", "constants", "attributes", "message"),
    [
        ("Unsqueeze", (ints(0, 0),), {}, r"axes \[0, 0\] have one of them twice"),
        ("Slice", (ints(0, 0), ints(1, 1), ints(0, -2)), {}, r"axes \[0, 0\] have one of them"),
        ("Transpose", (), {"perm": [0, 1, 2]}, r"perm \(0, 1, 2\) is no order of 2 dimensions"),
        ("Transpose", (), {"perm": [0, 0]}, r"perm \(0, 0\) is no order of 2 dimensions"),
        ("Flatten", (), {"axis": 3}, "axis 3 is outside a tensor of rank 2"),
        ("Cast", (), {}, "attribute to is missing"),
        ("Concat", (), {}, "attribute axis is missing"),
        ("Relu", (floats(1),), {}, "expected at most 1 input, got 2"),
        (
            "Resize",
            (floats(0), np.float32([0, 1])),
            {},
            r"scales \[0.0, 1.0\] must be more than 0",
        ),
        ("Resize", (floats(0), floats(0), ints(-4, 2)), {}, r"sizes \(-4, 2\) must not be neg"),
    ],
)
def test_nodes_that_the_standard_does_not_have(
    operator: str, constants: tuple[Array, ...], attributes: dict[str, object], message: str
) -> None:
    malformed(node_model(operator, {"x": floats(2, 4)}, constants, **attributes), message)


@pytest.mark.parametrize("operator", ["Relu", "ReduceSum", "Add", "Sum"])
def test_truth_values_are_no_numbers(operator: str) -> None:
    model = node_model(operator, {"x": np.zeros((2, 4), bool)})
    if operator == "Add":
        model.graph.node[0].input.append("x")
    malformed(model, r"inputs must be numbers, got bool\[2,4\]")


def test_functions_that_double_again_and_again() -> None:
    """Thirty functions, each of which calls the one before twice, would be 2**31 nodes."""
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("own", 1)]
    functions = []
    for i in range(31):
        called, domain = (f"F{i - 1}", "own") if i else ("Neg", "")
        nodes = [
            helper.make_node(called, [a], [b], domain=domain) for a, b in (("a", "t"), ("t", "b"))
        ]
        functions.append(helper.make_function("own", f"F{i}", ["a"], ["b"], nodes, opsets))
    model = node_model("F30", {"x": floats(2, 4)}, opset=21, domain="own")
    model.opset_import.append(opsets[1])
    model.functions.extend(functions)
    malformed(model, r"written out, are 2.15e\+09 nodes; at most 1000000 are taken")
