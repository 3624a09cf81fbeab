"""Random small ONNX models: chains and joins of the operators that exporters write.

In: a seed. Out: a model and its inputs. An action makes a node of a value, or nothing where the
value does not suit it; ONNX's own shape inference says what comes out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from autotune.types import Array
from tests.unit.frontend.onnx_models import nodes_model

LIMIT = 3000
"""Elements of a value."""
OPSET = 20
SMOOTH = (
    "Relu", "Tanh", "Abs", "Neg", "Sigmoid", "Erf", "HardSwish", "HardSigmoid", "Softplus",
    "Softsign", "Elu", "Selu", "Celu", "LeakyRelu", "Gelu", "Mish", "Sin", "Cos", "Identity",
)  # fmt: skip
STEPS = ("Floor", "Ceil", "Round", "Sign", "ThresholdedRelu")
"""A rounding error before these may be a whole one behind: they get exact values only."""
BINARY = ("Add", "Sub", "Mul", "Max", "Min", "Mean", "Sum")
REDUCTIONS = ("ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceL1", "ReduceSumSquare")


class RandomModel:
    """A model that grows by one node at a time."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.tensors: list[onnx.TensorProto] = []
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.exact: set[str] = set()
        self.feeds: dict[str, Array] = {}
        for name in ("x", "y")[: self.draw(1, 2)]:
            rank = self.pick((4, 4, 4, 3, 2))
            shape = (self.draw(1, 2), *(self.draw(1, 7) for _ in range(rank - 1)))
            self.feeds[name] = self.array(*shape)
            self.shapes[name] = shape
            self.exact.add(name)

    def draw(self, low: int, high: int) -> int:
        return int(self.rng.integers(low, high + 1))

    def pick(self, choices: Sequence[Any]) -> Any:
        return choices[self.draw(0, len(choices) - 1)]

    def array(self, *shape: int) -> Array:
        return self.rng.standard_normal(shape).astype(np.float32)

    def grow(self, steps: int) -> onnx.ModelProto:
        for _ in range(steps):
            action = self.pick(ACTIONS)
            x = self.pick([v for v, s in self.shapes.items() if s][-3:])
            if (made := action(self, x, self.shapes[x])) is not None:
                self._add(*made, exact=action in EXACT and x in self.exact)
        last = next((n.output[0] for n in reversed(self.nodes)), "")
        if not last:
            self._add("Neg", ["x"], {}, exact=True)
            last = self.nodes[0].output[0]
        others = [n.output[0] for n in self.nodes[:-1]]
        outputs = [last, *({self.pick(others)} if others else ())]
        return nodes_model(self.nodes, self.feeds, self.tensors, outputs, OPSET)

    def _add(
        self, op: str, operands: Sequence[str | Array], attrs: Mapping[str, Any], exact: bool
    ) -> None:
        number, names = len(self.nodes), []
        tensors = list(self.tensors)
        for position, operand in enumerate(operands):
            if isinstance(operand, str):
                names.append(operand)
            else:
                names.append(f"c{number}_{position}")
                tensors.append(numpy_helper.from_array(operand, names[-1]))
        output = f"{op.lower()}_{number}"
        node = helper.make_node(op, names, [output], name=output, **attrs)
        model = nodes_model([*self.nodes, node], self.feeds, tensors, [output], OPSET)
        shape = tuple(d.dim_value for d in model.graph.output[0].type.tensor_type.shape.dim)
        if all(shape) and 0 < np.prod(shape, dtype=int) <= LIMIT:
            self.nodes.append(node)
            self.tensors = tensors
            self.shapes[output] = shape
            self.exact |= {output} if exact else set()


Shape = tuple[int, ...]
Action = Callable[[RandomModel, str, Shape], Any]


def smooth(m: RandomModel, x: str, _: Shape) -> Any:
    return m.pick(SMOOTH), [x], {}


def step(m: RandomModel, x: str, _: Shape) -> Any:
    return (m.pick(STEPS), [x], {}) if x in m.exact else None


def binary(m: RandomModel, x: str, shape: Shape) -> Any:
    """With a value of the same shape, or a constant that broadcasts."""
    same = [v for v, s in m.shapes.items() if s == shape]
    part = [m.pick((e, 1)) for e in shape[m.draw(0, len(shape)) :]]
    both = [x, m.pick((m.pick(same), m.array(*part)))]
    return m.pick(BINARY), both[:: m.pick((1, -1))], {}


def prelu(m: RandomModel, x: str, shape: Shape) -> Any:
    return "PRelu", [x, m.array(*(m.pick((e, 1)) for e in shape))], {}


def where(m: RandomModel, x: str, shape: Shape) -> Any:
    return "Where", [m.array(*shape[-1:]) > 0, x, m.array(*shape[-2:])], {}


def clip(m: RandomModel, x: str, _: Shape) -> Any:
    bounds: list[str | Array] = [np.float32(-0.5).reshape(()), np.float32(0.75).reshape(())]
    return "Clip", [x, *bounds[: m.draw(0, 2)]], {}


def fits(shape: Shape, kernel: Sequence[int], attrs: Mapping[str, Any]) -> bool:
    """Whether a window lies in the padded image."""
    rank, pads = len(kernel), attrs["pads"]
    dilations = attrs.get("dilations", [1] * rank)
    return all(
        e + pads[d] + pads[d + rank] > (kernel[d] - 1) * dilations[d]
        for d, e in enumerate(shape[2:])
    )


def conv(m: RandomModel, x: str, shape: Shape) -> Any:
    if len(shape) < 3:
        return None
    rank, channels = len(shape) - 2, shape[1]
    groups = m.pick([g for g in range(1, channels + 1) if channels % g == 0])
    kernel = [m.draw(1, 3) for _ in range(rank)]
    weights = m.array(groups * m.draw(1, 4), channels // groups, *kernel)
    attrs = {
        "group": groups, "strides": [m.draw(1, 3) for _ in range(rank)],
        "dilations": [m.draw(1, 2) for _ in range(rank)],
        "pads": [m.draw(0, 2) for _ in range(2 * rank)],
    }  # fmt: skip
    if not fits(shape, kernel, attrs):
        return None
    return "Conv", [x, weights, *([m.array(len(weights))] if m.draw(0, 1) else [])], attrs


def conv_transpose(m: RandomModel, x: str, shape: Shape) -> Any:
    if len(shape) < 3:
        return None
    rank = len(shape) - 2
    weights = m.array(shape[1], m.draw(1, 4), *(m.draw(1, 4) for _ in range(rank)))
    return "ConvTranspose", [x, weights], {"strides": [m.draw(1, 3) for _ in range(rank)]}


def pool(m: RandomModel, x: str, shape: Shape) -> Any:
    if len(shape) < 3:
        return None
    rank = len(shape) - 2
    attrs: dict[str, Any] = {
        "kernel_shape": [m.draw(2, 3)] * rank, "strides": [m.draw(1, 2) for _ in range(rank)],
        "pads": [m.draw(0, 1) for _ in range(2 * rank)],
    }  # fmt: skip
    if not fits(shape, attrs["kernel_shape"], attrs):
        return None
    if m.draw(0, 1):
        return "MaxPool", [x], attrs
    return "AveragePool", [x], attrs | {"count_include_pad": m.draw(0, 1)}


def global_pool(m: RandomModel, x: str, shape: Shape) -> Any:
    kind = m.pick(("GlobalAveragePool", "GlobalMaxPool"))
    return (kind, [x], {}) if len(shape) > 2 else None


def norm(m: RandomModel, x: str, shape: Shape) -> Any:
    if len(shape) < 3:
        axis = m.draw(0, len(shape) - 1)
        return "LayerNormalization", [x, m.array(*shape[axis:])], {"axis": axis, "epsilon": 0.1}
    per_channel = [m.array(shape[1]) for _ in range(2)]
    if m.draw(0, 1):
        return "InstanceNormalization", [x, *per_channel], {"epsilon": 0.1}
    moments = [m.array(shape[1]), np.abs(m.array(shape[1])) + np.float32(0.5)]
    return "BatchNormalization", [x, *per_channel, *moments], {}


def softmax(m: RandomModel, x: str, shape: Shape) -> Any:
    return m.pick(("Softmax", "LogSoftmax")), [x], {"axis": m.draw(-len(shape), len(shape) - 1)}


def matmul(m: RandomModel, x: str, shape: Shape) -> Any:
    if len(shape) < 2:
        return None
    if len(shape) == 2 and m.draw(0, 1):
        flipped = m.draw(0, 1)
        weights = m.array(*(shape[1], m.draw(1, 9))[:: 1 - 2 * flipped])
        width = weights.shape[1 - flipped]
        return "Gemm", [x, weights, m.array(width)], {"transB": flipped, "alpha": 0.5, "beta": 2.0}
    outer = shape[:-2] if m.draw(0, 1) else ()
    return "MatMul", [x, m.array(*outer, shape[-1], m.draw(1, 9))], {}


def transpose(m: RandomModel, x: str, shape: Shape) -> Any:
    return "Transpose", [x], {"perm": m.rng.permutation(len(shape)).tolist()}


def reshape(m: RandomModel, x: str, shape: Shape) -> Any:
    """Two dimensions joined, or one of them left to be found."""
    if len(shape) < 2:
        return "Unsqueeze", [x, np.array([m.draw(0, 1)])], {}
    at = m.draw(0, len(shape) - 2)
    joined = [*shape[:at], shape[at] * shape[at + 1], *shape[at + 2 :]]
    joined[m.draw(0, len(joined) - 1)] = -1
    return "Reshape", [x, np.array(joined)], {}


def slice_(m: RandomModel, x: str, shape: Shape) -> Any:
    axis = m.draw(0, len(shape) - 1)
    ends = ((0, 9, 2), (1, 99, 1), (-1, -99, -1), (-2, 99, 1), (0, -1, 1))
    return "Slice", [x, *(np.array([v]) for v in (*m.pick(ends)[:2], axis))], {}


def gather(m: RandomModel, x: str, shape: Shape) -> Any:
    axis = m.draw(0, len(shape) - 1)
    places = m.rng.integers(-shape[axis], shape[axis], m.pick(((), (3,), (2, 2))))
    return "Gather", [x, np.asarray(places)], {"axis": axis}


def concat(m: RandomModel, x: str, shape: Shape) -> Any:
    axis = m.draw(0, len(shape) - 1)
    cut = [(*s[:axis], *s[axis + 1 :]) for s in m.shapes.values()]
    rest = (*shape[:axis], *shape[axis + 1 :])
    fit = [v for v, c in zip(m.shapes, cut, strict=True)
           if c == rest and len(m.shapes[v]) == len(shape)]  # fmt: skip
    return "Concat", [x, m.pick(fit), m.pick(fit)][: m.draw(2, 3)], {"axis": axis}


def pad(m: RandomModel, x: str, shape: Shape) -> Any:
    mode = m.pick(("constant", "reflect", "edge"))
    most = [min(e - 1, 2) if mode == "reflect" else 2 for e in shape]
    return "Pad", [x, np.array([m.draw(0, p) for p in most * 2])], {"mode": mode}


def expand(m: RandomModel, x: str, shape: Shape) -> Any:
    if m.draw(0, 1):
        return "Tile", [x, np.array([m.draw(1, 2) for _ in shape])], {}
    return "Expand", [x, np.array([2, *(1 for _ in shape)])], {}


def reduce(m: RandomModel, x: str, shape: Shape) -> Any:
    axes = m.rng.permutation(len(shape))[: m.draw(1, len(shape))]
    return m.pick(REDUCTIONS), [x, axes], {"keepdims": m.draw(0, 1)}


def resize(m: RandomModel, x: str, shape: Shape) -> Any:
    if len(shape) != 4:
        return None
    scales = np.array([1, 1, m.pick((2, 1, 1.5)), m.pick((2, 3, 0.5))], np.float32)
    attrs = {
        "mode": m.pick(("nearest", "linear", "cubic")),
        "coordinate_transformation_mode": m.pick(("half_pixel", "asymmetric", "align_corners")),
    }
    return "Resize", [x, "", scales], attrs


def shuffle(m: RandomModel, x: str, shape: Shape) -> Any:
    if len(shape) != 4 or shape[1] % 4:
        return None
    return "DepthToSpace", [x], {"blocksize": 2, "mode": m.pick(("DCR", "CRD"))}


def cumsum(m: RandomModel, x: str, shape: Shape) -> Any:
    axis = np.array(m.draw(-len(shape), len(shape) - 1))
    return "CumSum", [x, axis], {"exclusive": m.draw(0, 1), "reverse": m.draw(0, 1)}


def elements(m: RandomModel, x: str, shape: Shape) -> Any:
    axis = m.draw(0, len(shape) - 1)
    return "GatherElements", [x, m.rng.integers(0, shape[axis], shape)], {"axis": axis}


def grid(m: RandomModel, x: str, shape: Shape) -> Any:
    if len(shape) != 4:
        return None
    places = m.rng.uniform(-1.2, 1.2, (shape[0], 3, m.draw(1, 4), 2)).astype(np.float32)
    padding = m.pick(("zeros", "border", "reflection"))
    return "GridSample", [x, places], {"mode": "linear", "padding_mode": padding}


def trilu(m: RandomModel, x: str, shape: Shape) -> Any:
    return ("Trilu", [x], {"upper": m.draw(0, 1)}) if len(shape) > 1 else None


def lrn(m: RandomModel, x: str, shape: Shape) -> Any:
    return ("LRN", [x], {"size": m.pick((1, 3, 5)), "alpha": 0.1}) if len(shape) == 4 else None


EXACT: tuple[Action, ...] = (
    step, clip, where, transpose, reshape, slice_, gather, concat, pad, expand, elements, trilu,
)  # fmt: skip
ACTIONS: tuple[Action, ...] = (
    *EXACT, smooth, smooth, binary, binary, prelu, conv, conv, conv_transpose, pool, pool,
    global_pool, norm, softmax, matmul, matmul, reduce, resize, shuffle, cumsum, grid, lrn,
)  # fmt: skip


def random_model(seed: int, steps: int = 8) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """A valid model of at most `steps` nodes, and its inputs."""
    made = RandomModel(seed)
    return made.grow(steps), made.feeds
