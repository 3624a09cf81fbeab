"""Build a graph node by node. In: ops and their operands. Out: a typed, pruned `Graph`.

b = GraphBuilder("net")
x = b.input("x", TensorType(dtype="float32", shape=(1, 8)))
y = b.op("relu", b.op("matmul", x, b.constant(weights)))
graph = b.finish([("y", y)])
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from autotune.errors import ModelError, UndecidedError
from autotune.graph.ir import Graph, Node
from autotune.ops import OPS
from autotune.sizes import is_size, surely_less
from autotune.types import DTYPES, Array, Attr, TensorType, freeze_attrs, is_turned

LARGEST_BYTES = 1 << 40
"""Bytes of one tensor, at most: more are a slip, and what plans memory has a table of its
pages."""


class GraphBuilder:
    """Collects inputs, constants and nodes; every value's type follows from its op.

    `label` is the name given to nodes made from now on (the model's own node name)."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.label = ""
        self.numbers: dict[str, tuple[str, float, int]] = {}
        """By name of a value of bytes: the value of the numbers they stand for, their step and
        zero; a number is (byte - zero) * step."""
        """Constants whose values were of less than eight bits, or are floats of eight."""
        self.sequences: dict[str, tuple[str, ...]] = {}
        """Lists of values, by names of their own; a graph has none."""
        self.types: dict[str, TensorType] = {}
        self.constants: dict[str, Array] = {}
        self._inputs: list[tuple[str, TensorType]] = []
        self._nodes: list[Node] = []
        self._counts: dict[str, int] = {}

    def input(self, name: str, type_: TensorType) -> str:
        """A model input; keeps its name, so inputs come first."""
        if name in self.types:
            raise ModelError(f"input {name!r} is declared twice; input names must be unique")
        _check_size(f"input {name!r}", type_)
        self._inputs.append((name, type_))
        self.types[name] = type_
        return name

    def constant(self, array: Array, name: str = "") -> str:
        """A constant; `name` is used as it is where it is free."""
        dtype = "int64" if array.dtype == object else array.dtype.name
        if dtype not in DTYPES:
            raise ModelError(
                f"constant {name!r} has element type {dtype}; supported are "
                f"{', '.join(DTYPES)}: convert the model"
            )
        value = name if name and name not in self.types else self._numbered(name or "const")
        self.constants[value] = array if is_turned(array) else np.asarray(array, order="C")
        self.types[value] = TensorType(dtype=dtype, shape=tuple(array.shape))
        return value

    def op(self, op: str, *inputs: str, **attrs: Attr) -> str:
        """Apply an op; returns the name of its output."""
        frozen = freeze_attrs(attrs)
        type_ = OPS.get(op).infer([self.types[i] for i in inputs], dict(frozen))
        value = self._numbered(op)
        _check_size(f"the result of {op}", type_)
        self.types[value] = type_
        self._nodes.append(
            Node(op=op, inputs=inputs, output=value, attrs=frozen, name=self.label or value)
        )
        return value

    def sequence(self, values: Sequence[str]) -> str:
        """A name for a list of values."""
        name = f"sequence {len(self.sequences)}"
        self.sequences[name] = tuple(values)
        return name

    def shape(self, value: str) -> tuple[int, ...]:
        return self.types[value].shape

    def dtype(self, value: str) -> str:
        return self.types[value].dtype

    def is_input(self, value: str) -> bool:
        return any(name == value for name, _ in self._inputs)

    def maker(self, value: str) -> Node | None:
        """The node whose output a value is; None of inputs and constants."""
        return next((node for node in reversed(self._nodes) if node.output == value), None)

    def evaluated(self, value: str) -> Array | None:
        """The array of a value that no input has a part in, else None; of objects where sizes
        are among its numbers. Raises UndecidedError where these decide."""
        needed, cone = {value}, []
        for node in reversed(self._nodes):
            if node.output in needed:
                cone.append(node)
                needed.update(node.inputs)
        if any(name in needed for name, _ in self._inputs):
            return None
        arrays = {name: self.constants[name] for name in needed if name in self.constants}
        for node in reversed(cone):
            given = [arrays[i] for i in node.inputs]
            arrays[node.output] = self._computed(node, given)
        return arrays[value]

    def _computed(self, node: Node, given: Sequence[Array]) -> Array:
        try:
            made = np.asarray(OPS.get(node.op).reference(given, node.attributes))
        except TypeError:  # numpy's, of what has no number yet
            sizes = {str(a) for array in given for a in array.flat if is_size(a)}
            if not sizes:
                raise
            raise UndecidedError(f"{node.op} of {', '.join(sorted(sizes))}") from None
        if made.dtype == object:
            return made
        return made.astype(self.types[node.output].dtype, copy=False)

    def inputs_of(self, value: str) -> frozenset[str]:
        """The inputs that a value depends on."""
        needed = {value}
        for node in reversed(self._nodes):
            if node.output in needed:
                needed.update(node.inputs)
        return frozenset(name for name, _ in self._inputs if name in needed)

    def finish(
        self, outputs: Sequence[tuple[str, str]], declared: Mapping[str, str] | None = None
    ) -> Graph:
        """The graph of what `outputs` need: pairs of (public name, value). The rest is dropped.
        `declared`: inputs and outputs that callers have as other floats."""
        needed = {value for _, value in outputs}
        kept: list[Node] = []
        for node in reversed(self._nodes):
            if node.output in needed:
                kept.append(node)
                needed.update(node.inputs)
        constants = {n: a for n, a in self.constants.items() if n in needed}
        needed.update(n for n, _ in self._inputs)
        return Graph(
            name=self.name,
            inputs=tuple(self._inputs),
            outputs=tuple(outputs),
            nodes=tuple(reversed(kept)),
            constants=constants,
            types={n: t for n, t in self.types.items() if n in needed},
            declared=tuple((declared or {}).items()),
        )

    def _numbered(self, stem: str) -> str:
        while True:
            self._counts[stem] = self._counts.get(stem, 0) + 1
            name = f"{stem}_{self._counts[stem]}"
            if name not in self.types:
                return name


def _check_size(what: str, type_: TensorType) -> None:
    if surely_less(LARGEST_BYTES, type_.nbytes):
        raise ModelError(
            f"{what}, {type_}, takes {type_.nbytes / 1e12:.3g} TB; tensors take up to "
            f"{LARGEST_BYTES / 1e12:.2g} TB: check the shapes of the inputs"
        )
