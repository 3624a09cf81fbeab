"""The graph on bytes. In: a float32 graph and a plan. Out: a graph that multiplies bytes.

conv(x, W) + b, relu   ->   bytes(int32 sums of bytes(x) * bytes(W), times a factor per channel,
plus a shift per channel), where the factors hold the steps of x, of W and of the result, and the
shifts b and the zeros of x. What reads a value that is kept as bytes reads the bytes.
"""

from __future__ import annotations

import math

import numpy as np

from autotune.graph.int8.linear import LinearSum, Term, as_bytes, materialized
from autotune.graph.int8.plan import NEIGHBOURS, SAME_ELEMENTS, QuantizationPlan, Steps
from autotune.graph.ir import Graph, Node
from autotune.graph.rewriter import Rewriter, ints, use_counts
from autotune.types import Array, Attr

LAST = (0, 2, 3, 1)
"""Channels behind rows and columns."""


def lower(graph: Graph, plan: QuantizationPlan) -> Graph:
    """The graph as planned; inputs and outputs keep their types."""
    return _Lowering(graph, plan).run() if plan.steps else graph


class _Lowering:
    """Values of the old graph are known here as bytes (`bytes`), as sums that are not computed yet
    (`forms`) or as floats (`floats`), by their old names."""

    def __init__(self, graph: Graph, plan: QuantizationPlan) -> None:
        self.graph, self.plan = graph, plan
        self.new = Rewriter(graph)
        self.uses = use_counts(graph)
        self.outputs = {value for _, value in graph.outputs}
        self.forms: dict[str, LinearSum] = {}
        self.bytes: dict[str, str] = {}
        self.floats = {n: n for n in (*(name for name, _ in graph.inputs), *graph.constants)}

    def run(self) -> Graph:
        for name, _ in self.graph.inputs:
            if name in self.plan.steps:
                like = Node(op="to_uint8", inputs=(), output=name, name=name)
                self._keep(name, LinearSum.of_float(name), like)
                if self.plan.own:
                    del self.floats[name]
        for node in self.graph.nodes:
            if not (self._same_elements(node) or self._limited(node)):
                self._compute(node)
        for value in dict.fromkeys(value for _, value in self.graph.outputs):
            like = Node(op="to_float32", inputs=(), output=value, name=value)
            self.new.replace(value, self._float(value, like))
        return self.new.finish()

    # -------------------------------------------------------------------------------------- nodes

    def _compute(self, node: Node) -> None:
        """Any node: a sum where it is one, else the node over floats; then bytes where planned."""
        output = node.output
        form = self._form(node)
        if form is None:
            inputs = [self._float(i, node) for i in node.inputs]
            value = self.new.emit(node.op, inputs, node, **node.attributes)
            if value in self.new.types and output not in self.plan.steps:
                self.floats[output] = value
                return
            form = LinearSum.of_float(value)
        if output in self.plan.steps:
            if output in self.outputs or output in self.plan.exact:
                self.floats[output] = materialized(self.new, form, node)
                form = LinearSum.of_float(self.floats[output])
            self._keep(output, form, node)
        elif self.uses[output] == 1 and output not in self.outputs:
            self.forms[output] = form
        else:
            self.floats[output] = materialized(self.new, form, node)

    def _form(self, node: Node) -> LinearSum | None:
        """The node as a sum of values that are there; None where it is none."""
        if node.output in self.plan.contractions:
            return self._contraction(node)
        if node.op not in ("add", "sub", "mul", "div") or len(node.inputs) != 2:
            return None
        shape = self.graph.types[node.output].shape
        left, right = node.inputs
        if node.op in ("add", "mul") and left not in self.forms:
            left, right = right, left
        if left not in self.forms or self.graph.types[left].shape != shape:
            return None
        form, known = self.forms[left], self._known(right, shape)
        if known is not None and node.op in ("add", "sub"):
            return form.shifted(known if node.op == "add" else -known)
        if known is not None and (node.op == "mul" or known.all()):
            return form.scaled(known if node.op == "mul" else 1 / known)
        if node.op not in ("add", "sub") or self.graph.types[right].shape != shape:
            return None
        other = self.forms.get(right) or LinearSum.of_float(self._float(right, node))
        return form + (other if node.op == "add" else other.scaled(np.array([-1.0])))

    def _known(self, value: str, shape: tuple[int, ...]) -> Array | None:
        """A constant of one element, or one per channel, in double precision."""
        array = self.graph.constants.get(value)
        if array is None and value in self.floats:
            array = self.new.known(self.floats[value])
        if array is None or not shape:
            return None
        if array.size != 1 and (array.size != shape[-1] or array.shape[-1] != shape[-1]):
            return None
        return array.reshape(-1).astype(np.float64)

    def _same_elements(self, node: Node) -> bool:
        """Views and maxima of bytes."""
        steps = self.plan.steps.get(node.output)
        if steps is None or node.op not in SAME_ELEMENTS:
            return False
        if not all(i in self.bytes and self.plan.steps[i] == steps for i in node.inputs):
            return False
        inputs = [self.bytes[i] for i in node.inputs]
        self.bytes[node.output] = self.new.emit(node.op, inputs, node, **node.attributes)
        if node.output in self.plan.exact:
            floats = [self._float(i, node) for i in node.inputs]
            self.floats[node.output] = self.new.emit(node.op, floats, node, **node.attributes)
        else:
            self.forms[node.output] = LinearSum.of_bytes(self.bytes[node.output], steps)
        return True

    def _limited(self, node: Node) -> bool:
        """A relu or clip whose limits the range of its bytes has anyway."""
        steps = self.plan.steps.get(node.output)
        if steps is None or node.op not in ("relu", "clip"):
            return False
        if node.output in self.outputs or node.output in self.plan.exact:
            return False
        attrs = node.attributes
        low = 0.0 if node.op == "relu" else float(attrs.get("min", -math.inf))  # type: ignore[arg-type]
        high = float(attrs.get("max", math.inf)) if node.op == "clip" else math.inf  # type: ignore[arg-type]
        slack = steps.step / 2
        if steps.low < low - slack or steps.high > high + slack:
            return False
        (source,) = node.inputs
        form = self.forms.get(source) or LinearSum.of_float(self._float(source, node))
        self._keep(node.output, form, node)
        return True

    # --------------------------------------------------------------------------------------- bytes

    def _keep(self, value: str, form: LinearSum, like: Node) -> None:
        """Compute a value as bytes; whoever wants floats reads the bytes."""
        steps = self.plan.steps[value]
        self.bytes[value] = as_bytes(self.new, form, steps, like)
        if value not in self.plan.exact:
            self.forms[value] = LinearSum.of_bytes(self.bytes[value], steps)

    def _float(self, value: str, like: Node) -> str:
        """The value as floats. From bytes they are computed for each reader, inside its kernel."""
        if value not in self.floats:
            return materialized(self.new, self.forms[value], like)
        return self.floats[value]

    def _contraction(self, node: Node) -> LinearSum:
        """32-bit sums, and what makes numbers of them."""
        source, weights = node.inputs
        steps = self.plan.steps[source]
        array, unit = weight_bytes(self.graph.constants[weights], self.plan.units.get(weights))
        data, attrs = self.bytes[source], node.attributes
        if node.op == "conv2d":
            data, array, attrs = self._padded(node, data, array, steps)
        inputs = [data, self.new.constant(array, f"{weights}.bytes")]
        total = self.new.emit(node.op, inputs, node, **attrs)
        factor = unit * steps.step
        ones = array.astype(np.int64).reshape(-1, array.shape[-1]).sum(axis=0)
        return LinearSum(
            terms=(Term(value=total, factor=factor),), shift=-factor * ones * float(steps.zero)
        )

    def _padded(
        self, node: Node, data: str, weights: Array, steps: Steps
    ) -> tuple[str, Array, dict[str, Attr]]:
        """(data, weights, attributes) of a convolution whose padding stands for zeros, and whose
        channels come in fours."""
        attrs = node.attributes
        pads = ints(node, "pads") if "pads" in attrs else (0, 0, 0, 0)
        more = -weights.shape[2] % NEIGHBOURS if attrs.get("groups", 1) == 1 else 0
        around = pads if any(pads) and steps.zero else (0, 0, 0, 0)
        if not more and not any(around):
            return data, weights, attrs
        data = self._around(node, data, around, more, float(steps.zero))
        weights = np.pad(weights, ((0, 0), (0, 0), (0, more), (0, 0)))
        rest = (0, 0, 0, 0) if any(around) else pads
        return data, weights, attrs | {"pads": rest}

    def _around(
        self, node: Node, data: str, pads: tuple[int, ...], more: int, value: float
    ) -> str:
        """Images with points around them and more channels. Where their channels were moved last,
        that comes after: rows of points are written in vectors, single points are not."""
        top, left, bottom, right = pads
        moved = self.new.producer(data)
        if moved is None or moved.op != "transpose" or moved.attributes["perm"] != LAST:
            widths = (0, top, left, 0, 0, bottom, right, more)
            return self.new.emit("pad", [data], node, pads=widths, value=value)
        widths = (0, 0, top, left, 0, more, bottom, right)
        data = self.new.emit("pad", list(moved.inputs), node, pads=widths, value=value)
        return self.new.emit("transpose", [data], node, perm=LAST)


def weight_bytes(array: Array, unit: Array | None = None) -> tuple[Array, Array]:
    """(int8 weights, the number that 1 stands for, per output channel)."""
    if unit is None:
        axes = tuple(range(array.ndim - 1))
        largest = np.abs(array.astype(np.float64)).max(axis=axes)
        unit = np.where(largest > 0, largest / 127, 1.0)
    return np.rint(array / unit).astype(np.int8), unit
