"""Random ONNX models of many operators, types and odd shapes, with what they should give.

In: a seed. Out: a model, its inputs, and for each output the expected values and how far rounding
may move them. Every node is run by ONNX Runtime or the reference evaluator as it is added: once
with exact operands and twice with operands that are moved by their type's rounding error, so that
an element is held to no more than the model itself holds. A node that neither runs is left out.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnxruntime
from ml_dtypes import bfloat16
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from autotune.types import Array

EXTENTS = (0, 1, 1, 1, 1, 2, 2, 3, 3, 4, 5, 7, 8, 9, 12, 16, 17, 33)
LIMIT = 6000
"""Elements of a value."""
WHOLE = ("int64", "int32", "int16", "int8", "uint8", "uint16", "uint32", "uint64")
MOVED = {"float32": 1e-6, "float64": 1e-6, "float16": 2e-3, "bfloat16": 2e-2}
"""Relative rounding error of a node's results; float64 is computed in float32."""
LARGEST = {"float32": 1e5, "float64": 1e5, "float16": 1e3, "bfloat16": 1e3}
"""Values beyond it are not kept, so that no sum of some of them overflows."""
OPSETS = (7, 9, 11, 12, 13, 13, 15, 17, 18, 19, 20, 21, 22, 23)
RUNS = 3


class NothingToDrawError(Exception):
    """An action has no choice for this value."""


@dataclass(frozen=True, slots=True)
class Expected:
    """The values of an output, and how far from them an element may be."""

    values: Array
    slack: Array

    def difference(self, got: Array, tolerance: float) -> str:
        """Empty where `got` is right within `tolerance` of the largest value, or the slack."""
        if got.shape != self.values.shape:
            return f"shape {got.shape} for {self.values.shape}"
        kind, wanted = got.dtype.kind.replace("V", "f"), self.values.dtype.kind.replace("V", "f")
        if kind != wanted or (kind in "biu" and got.dtype != self.values.dtype):
            return f"type {got.dtype} for {self.values.dtype}"
        a, b = got.astype(np.float64), self.values.astype(np.float64)
        largest = np.abs(b[np.isfinite(b)]).max(initial=0.0)
        with np.errstate(invalid="ignore"):
            near = np.abs(a - b) <= self.slack + tolerance * largest * (kind == "f")
        wrong = ~(near | (got == self.values) | (np.isnan(a) & np.isnan(b)) | np.isinf(self.slack))
        if not wrong.any():
            return ""
        at = tuple(int(i[0]) for i in np.nonzero(np.atleast_1d(wrong)))
        one, other = np.atleast_1d(got)[at], np.atleast_1d(self.values)[at]
        return f"{wrong.sum()} of {wrong.size} wrong, at {list(at)} {one} for {other}"


@dataclass(frozen=True, slots=True)
class WildModel:
    """A model of one seed."""

    model: onnx.ModelProto
    feeds: Mapping[str, Array]
    expected: Sequence[Expected]


def described(
    nodes: Sequence[onnx.NodeProto],
    feeds: Mapping[str, Array],
    tensors: Sequence[onnx.TensorProto],
    outputs: Mapping[str, Array],
    opset: int,
) -> onnx.ModelProto:
    """A model whose inputs and outputs have their types."""
    infos = [
        [
            helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), shape(a))
            for n, a in arrays.items()
        ]
        for arrays, shape in ((feeds, np.shape), (outputs, lambda _: None))
    ]
    graph = helper.make_graph(list(nodes), "wild", *infos, list(tensors))
    versions = {"": opset, **{n.domain: 1 for n in nodes if n.domain}}
    opsets = [helper.make_opsetid(*pair) for pair in versions.items()]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10 if opset < 23 else 11)


def run_node(
    node: onnx.NodeProto, operands: Mapping[str, Array], opset: int, count: int
) -> list[list[Array]] | None:
    """The node's results for each of `count` sets of operands, which are the leading dimension;
    None where nobody runs it."""
    first = {n: a[0] for n, a in operands.items()}
    outputs = {o: np.zeros(0, np.float32) for o in node.output if o}
    model = described([node], first, (), outputs, opset)
    for info in model.graph.output:
        info.ClearField("type")
    sets = [{n: a[i] for n, a in operands.items()} for i in range(count)]
    if not any(a.dtype == bfloat16 for a in first.values()):
        options = onnxruntime.SessionOptions()
        options.log_severity_level, options.intra_op_num_threads = 4, 1
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        try:
            session = onnxruntime.InferenceSession(model.SerializeToString(), options)
            return [[np.asarray(v) for v in session.run(None, s)] for s in sets]
        except Exception as error:  # whatever it raises, the other one is asked
            logging.debug("ONNX Runtime: %s", error)
    if not legal(node, first, opset):
        return None
    try:
        with np.errstate(all="ignore"):
            evaluator = ReferenceEvaluator(model)
            return [[np.asarray(v) for v in evaluator.run(None, s)] for s in sets]
    except Exception as error:  # nobody can say what it should give
        logging.debug("reference: %s", error)
        return None


def legal(node: onnx.NodeProto, operands: Mapping[str, Array], opset: int) -> bool:
    """Whether the operator takes operands of these types, which the evaluator does not ask."""
    try:
        schema = onnx.defs.get_schema(node.op_type, opset, node.domain)
    except onnx.defs.SchemaError:
        return False
    allowed = {c.type_param_str: c.allowed_type_strs for c in schema.type_constraints}
    last = itertools.repeat(schema.inputs[-1] if schema.inputs else None)
    for name, param in zip(node.input, itertools.chain(schema.inputs, last), strict=False):
        if name and param is not None:
            code = helper.np_dtype_to_tensor_dtype(operands[name].dtype)
            kind = onnx.TensorProto.DataType.Name(code).lower()
            if f"tensor({kind})" not in allowed.get(param.type_str, (f"tensor({kind})",)):
                return False
    return True


class Builder:
    """A model that grows by one node at a time; values are arrays with a leading dimension of
    runs, the first of which is exact."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng([seed, 77])
        self.opset = self.pick(OPSETS)
        self.nodes: list[onnx.NodeProto] = []
        self.tensors: list[onnx.TensorProto] = []
        self.feeds: dict[str, Array] = {}
        self.values: dict[str, Array] = {}
        self.names = (f"v{i}" for i in itertools.count())
        for _ in range(self.draw(1, 2)):
            shape = [
                self.pick(EXTENTS) for _ in range(self.pick((0, 1, 2, 2, 3, 3, 4, 4, 4, 4, 5)))
            ]
            while np.prod(shape) > LIMIT:
                shape[int(np.argmax(shape))] //= 2
            kind = self.pick(("float32",) * 6 + ("float16", "bfloat16", "float64", "bool", *WHOLE))
            self.feed(self.random(shape, kind))

    def draw(self, low: int, high: int) -> int:
        if low > high:
            raise NothingToDrawError
        return int(self.rng.integers(low, high + 1))

    def pick(self, choices: Sequence[Any]) -> Any:
        return choices[self.draw(0, len(choices) - 1)]

    def chance(self, share: float) -> bool:
        return bool(self.rng.random() < share)

    def random(self, shape: Sequence[int], kind: Any) -> Array:
        dtype = np.dtype(bfloat16 if kind == "bfloat16" else kind)
        if dtype.kind == "b":
            return self.rng.random(shape) < 0.5
        if dtype.kind in "iu":
            low = -9 if dtype.kind == "i" else 0
            return self.rng.integers(low, 10, shape).astype(dtype)
        return np.asarray(self.rng.standard_normal(shape)).astype(dtype)

    def feed(self, array: Array) -> str:
        name = next(self.names)
        self.feeds[name] = array
        self.values[name] = self.moved(np.stack([array] * RUNS))
        return name

    def constant(self, array: Any) -> str:
        """An initializer, or what a node of Constant gives."""
        array, name = np.asarray(array), next(self.names)
        tensor = numpy_helper.from_array(array, name)
        if self.chance(0.15):
            self.nodes.append(helper.make_node("Constant", [], [name], value=tensor))
        else:
            self.tensors.append(tensor)
        self.values[name] = np.stack([array] * RUNS)
        return name

    def operand(self, shape: Sequence[int], kind: Any) -> str:
        """A constant, an input, or a value that is there."""
        there = [
            n for n, v in self.values.items() if v.shape[1:] == tuple(shape) and v.dtype == kind
        ]
        if there and self.chance(0.4):
            return str(self.pick(there))
        array = self.random(shape, kind)
        return self.feed(array) if self.chance(0.25) else self.constant(array)

    def moved(self, array: Array) -> Array:
        """All runs but the first with the rounding errors of another computation."""
        share = MOVED.get(str(array.dtype))
        if share is None:
            return array
        noise = share * self.rng.uniform(-1, 1, array.shape)
        noise[0] = 0
        return np.asarray((array.astype(np.float64) * (1 + noise)).astype(array.dtype))

    def node(
        self, op: str, inputs: Sequence[str], attrs: Mapping[str, Any], outputs: int = 1
    ) -> bool:
        """Add it, unless nobody runs it or its results are of no use."""
        names = [next(self.names) for _ in range(outputs)]
        if any(v == [] for v in attrs.values()):
            return False  # no attribute has this form
        domain, _, kind = op.rpartition(".")
        node = helper.make_node(
            kind, list(inputs), names, name=f"n_{names[0]}", domain=domain, **attrs
        )
        operands = {n: self.values[n] for n in dict.fromkeys(inputs) if n}
        results = run_node(node, operands, self.opset, RUNS)
        if results is None or any(not useful(a) for run in results for a in run):
            return False
        columns = list(zip(*results, strict=True))
        if any(len({a.shape for a in column}) > 1 for column in columns):
            return False
        self.nodes.append(node)
        for name, column in zip(names, columns, strict=True):
            self.values[name] = self.moved(np.stack(column))
        return True

    def finished(self) -> WildModel:
        """Outputs are the last value and some others, among them inputs and constants."""
        made = [o for n in self.nodes for o in n.output]
        chosen = [*made[-1:], *(self.pick(made) for _ in range(self.draw(0, 2)) if made)]
        if not chosen or self.chance(0.05):
            chosen.append(self.pick(list(self.values)))
        chosen = list(dict.fromkeys(chosen))
        outputs = {name: self.values[name][0] for name in chosen}
        model = described(self.nodes, self.feeds, self.tensors, outputs, self.opset)
        return WildModel(model, self.feeds, [expected(self.values[n]) for n in chosen])


def useful(array: Array) -> bool:
    """Whether a model may go on with it: not large, and of numbers."""
    if array.size > LIMIT or array.dtype.kind not in "fbiuV":
        return False
    limit = LARGEST.get(str(array.dtype))
    if limit is None:
        return array.dtype.kind != "V"
    whole = np.abs(array.astype(np.float64))
    return bool(np.all(whole <= limit))


def expected(runs: Array) -> Expected:
    if runs.dtype.kind in "biu":
        same = np.all(runs == runs[:1], axis=0)
        return Expected(runs[0], np.where(same, 0.0, np.inf))
    wide = runs.astype(np.float64)
    own = 2 * MOVED.get(str(runs.dtype), 0.0) * np.abs(wide[0])
    return Expected(runs[0], own + 8 * np.abs(wide - wide[:1]).max(axis=0))


Action = Callable[[Builder, str, Array], bool]
"""Adds a node of a value, of which it is told the name and the exact array; whether it did."""


def wild_model(seed: int, actions: Sequence[Action], steps: int = 6) -> WildModel:
    """The model of a seed, of at most `steps` nodes, and what it should give."""
    builder = Builder(seed)
    for action in drawn(builder, actions, 4 * steps):
        name = builder.pick([*list(builder.values)[-4:], builder.pick(list(builder.values))])
        with contextlib.suppress(NothingToDrawError):
            action(builder, name, builder.values[name][0])
        if len(builder.nodes) >= steps:
            break
    return builder.finished()


def drawn(builder: Builder, actions: Sequence[Action], count: int) -> Iterator[Action]:
    return (builder.pick(actions) for _ in range(count))
