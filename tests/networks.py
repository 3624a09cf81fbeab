"""Networks for whole-model tests: built here or taken from the onnx package, weights seeded.

The onnx package ships `light_*` networks of the classic architectures, their weights all made by
ConstantOfShape; they get random weights of ordinary size here. Every network also shows what goes
into its last softmax: a saturated softmax would hide errors.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

from autotune.frontend.zoo import ZOO, build_model
from autotune.frontend.zoo.transformers import Encoder, encoder
from autotune.types import Array

LIGHT = (
    "resnet50", "squeezenet", "densenet121", "inception_v2", "shufflenet", "vgg19",
    "bvlc_alexnet",
)  # fmt: skip
MINILM = Encoder(layers=6, width=384, heads=12, inner=1536)
ENCODERS = {
    "minilm": MINILM,
    "bert_base": Encoder(layers=12, width=768, heads=12, inner=3072),
    "encoder_small": dataclasses.replace(MINILM, layers=1, width=48, inner=96, vocabulary=50),
}


def network(name: str) -> onnx.ModelProto:
    """A network by name: of the zoo, an encoder, or a light one."""
    if name in ENCODERS:
        return encoder(name, ENCODERS[name])
    model = light_network(name) if name in LIGHT else build_model(name)
    show_logits(model.graph)
    return model


def names() -> tuple[str, ...]:
    return tuple(dict.fromkeys((*ZOO, *ENCODERS, *LIGHT)))


def show_logits(graph: onnx.GraphProto) -> None:
    """Make the input of a softmax that ends the network an output as well."""
    public = {o.name for o in graph.output}
    for node in graph.node:
        if node.op_type == "Softmax" and node.output[0] in public:
            value = onnx.helper.make_tensor_value_info(node.input[0], onnx.TensorProto.FLOAT, None)
            graph.output.append(value)


# ---------------------------------------------------------------------------------- light networks


def light_network(name: str, seed: int = 1) -> onnx.ModelProto:
    """A light network with seeded weights in place of its ConstantOfShape nodes."""
    folder = Path(onnx.__file__).parent / "backend/test/data/light"
    model = onnx.load(str(folder / f"light_{name}.onnx"))
    graph, rng = model.graph, np.random.default_rng(seed)
    stored = {i.name: numpy_helper.to_array(i) for i in graph.initializer}
    fills = {n.output[0]: n for n in graph.node if n.op_type == "ConstantOfShape"}
    shape_of = {out: tuple(map(int, stored[n.input[0]])) for out, n in fills.items()}
    made: dict[str, Array] = {}
    for value, draw in _weight_uses(graph):
        if value in shape_of and value not in made:
            made[value] = draw(rng, shape_of[value]).astype(np.float32, copy=False)
    for value in set(shape_of) - set(made):
        made[value] = rng.uniform(0.8, 1.2, shape_of[value]).astype(np.float32)
    kept = [n for n in graph.node if n.output[0] not in made]
    del graph.node[:]
    graph.node.extend(kept)
    graph.initializer.extend(numpy_helper.from_array(a, n) for n, a in sorted(made.items()))
    inputs = [i for i in graph.input if i.name not in stored]
    del graph.input[:]
    graph.input.extend(inputs)
    model.ir_version = 8
    return model


Draw = Callable[[np.random.Generator, tuple[int, ...]], Array]


def _weight_uses(graph: onnx.GraphProto) -> Iterator[tuple[str, Draw]]:
    """(value, how to draw it) for every operand that can be a weight, by the role it plays."""
    behind = {n.output[0]: n.input[0] for n in graph.node if n.op_type == "Unsqueeze"}
    for node in graph.node:
        for position, operand in enumerate(node.input):
            value = behind.get(operand, operand)
            if position == 1 and node.op_type == "Conv":
                yield value, _conv_weights
            elif position == 1 and node.op_type == "Gemm":
                yield value, _dense_weights
            elif node.op_type == "Mul" or (node.op_type, position) in _SCALES:
                yield value, lambda rng, shape: rng.uniform(0.8, 1.2, shape)
            elif node.op_type in ("Conv", "Gemm", "BatchNormalization", "Add"):
                yield value, lambda rng, shape: rng.normal(0, 0.1, shape)


_SCALES = (("BatchNormalization", 1), ("BatchNormalization", 4))


def _conv_weights(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """He-scaled, so that a rectifier behind it keeps the variance."""
    return _normal(rng, math.sqrt(2 / math.prod(shape[1:])), shape)


def _dense_weights(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return _normal(rng, math.sqrt(1 / max(shape)), shape)


def _normal(rng: np.random.Generator, scale: float, shape: tuple[int, ...]) -> Array:
    """Drawn as float32: there are up to a hundred million."""
    return rng.standard_normal(shape, np.float32) * np.float32(scale)
