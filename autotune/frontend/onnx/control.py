"""If, Loop and Scan of an ONNX model. In: a node, and the import it is part of. Out: the values of
its outputs. Loops are unrolled; where only a run knows the condition of an If, both branches are
computed and one is chosen.

What costs more that way than a run that loops and branches, or cannot be written so, raises a
ControlFlowError: `autotune.fallback` runs it. `Importing.whole` asks for one graph at any cost.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import onnx

from autotune.errors import ControlFlowError, ModelError, UndecidedError, UnsupportedOpError
from autotune.graph.build import GraphBuilder
from autotune.sizes import is_size

UNROLLED_NODES = 5_000
"""Loops are unrolled up to this many nodes."""
SHORT_TRIPS, SHORT_NODES = 16, 250
"""Loops of more trips and more nodes in all than these are left to the run: what is
unrolled takes as long to compile as all its nodes do, while a trip costs some 20 ns."""
LIGHT_NODES = 16
"""Branches of up to this many nodes together are both computed: a run that takes one of them has
to look at the condition between two native calls, which costs some microseconds."""


class Importing(Protocol):
    """An import that is going on."""

    builder: GraphBuilder
    values: dict[str, str]
    imported: int
    """Nodes so far, each as often as it was met."""
    whole: bool
    """Whether everything has to become one graph."""

    def initializers(self, graph: onnx.GraphProto) -> dict[str, str]:
        """A graph's constants, by their names in the file."""

    def inner(self, graph: onnx.GraphProto, known: Mapping[str, str], where: str) -> list[str]:
        """The values of a graph's outputs; its inputs and constants are `known`."""


def if_(run: Importing, node: onnx.NodeProto, where: str) -> list[str]:
    condition = run.values[node.input[0]]
    known = run.builder.evaluated(condition)
    names = ["then_branch", "else_branch"]
    if known is not None:
        names = names[:1] if known.item() else names[1:]
    graphs = [_graph(node, name, where) for name in names]
    if known is None and not run.whole and sum(map(_computing, graphs)) > LIGHT_NODES:
        error = ControlFlowError(f"{where}: only a run knows its condition")
        error.value, error.inputs = node.input[0], run.builder.inputs_of(condition)
        raise error
    taken, *other = [run.inner(graph, run.initializers(graph), where) for graph in graphs]
    if not other:
        return taken
    whole = run.builder.op("reshape", condition, shape=())
    return [_chosen(run.builder, whole, pair, where) for pair in zip(taken, other[0], strict=True)]


def _chosen(builder: GraphBuilder, condition: str, results: tuple[str, str], where: str) -> str:
    types = [builder.types.get(r) for r in results]
    if types[0] is None or types[0] != types[1]:
        given = " and ".join("a sequence" if t is None else str(t) for t in types)
        raise ControlFlowError(
            f"{where}: only a run knows its condition, and its branches give {given}; types are "
            "static here: export the model for one case"
        )
    return builder.op("where", condition, *results)


def loop(run: Importing, node: onnx.NodeProto, where: str) -> list[str]:
    """The body once per trip, where constants say how often; scan outputs are joined."""
    body = _graph(node, "body", where)
    most, first = (_item(run, v, where) if v else None for v in node.input[:2])
    going = first is None or bool(first)
    states = [run.values[v] for v in node.input[2:]]
    scans: list[list[str]] = [[] for _ in body.output[1 + len(states) :]]
    initializers = run.initializers(body)
    names = [i.name for i in body.input]
    trip, before = 0, run.imported
    _check_trips(run, most, where)
    while going and (most is None or trip < most):
        _check_unrolled(run, before, trip, body, where)
        counted = [run.builder.constant(np.asarray(v)) for v in (trip, True)]
        given = zip(names, (*counted, *states), strict=True)
        condition, *results = run.inner(body, {**initializers, **dict(given)}, where)
        going = bool(_number(run, condition, body.output[0].name, where))
        states, made = results[: len(states)], results[len(states) :]
        for scan, value in zip(scans, made, strict=True):
            scan.append(value)
        trip += 1
    if scans and not trip:
        raise ControlFlowError(f"{where}: its scan outputs are empty; leave the loop out")
    return [*states, *(_joined(run.builder, scan, 0) for scan in scans)]


def scan(run: Importing, node: onnx.NodeProto, where: str) -> list[str]:
    """The body once per element of the scan inputs, each along an axis and in a direction."""
    body, count = _graph(node, "body", where), int(_attribute(node, "num_scan_inputs", 0))
    given = [run.values[v] for v in node.input if v]
    first = len(given) - count
    if first != len(node.input) - count or not 1 <= count <= len(given):
        raise UnsupportedOpError(f"{where}: scans with batches (opset 8) are not supported")
    states, inputs = given[:first], given[first:]
    ranks = [len(run.builder.shape(v)) for v in inputs]
    axes = [a % r for a, r in zip(_ints(node, "scan_input_axes", count), ranks, strict=True)]
    backward = _ints(node, "scan_input_directions", count)
    extents = {run.builder.shape(v)[a] for v, a in zip(inputs, axes, strict=True)}
    if len(extents) != 1 or extents == {0}:
        raise UnsupportedOpError(f"{where}: scans over {sorted(extents)} elements; expected one")
    (extent,) = extents
    _check_trips(run, extent, where)
    initializers, names = run.initializers(body), [i.name for i in body.input]
    kept = len(body.output) - first
    scans: list[list[str]] = [[] for _ in range(kept)]
    before = run.imported
    for trip in range(extent):
        _check_unrolled(run, before, trip, body, where)
        elements = [
            _element(run.builder, v, axis, extent - 1 - trip if back else trip)
            for v, axis, back in zip(inputs, axes, backward, strict=True)
        ]
        known = dict(zip(names, (*states, *elements), strict=True))
        results = run.inner(body, {**initializers, **known}, where)
        states = results[:first]
        for made, value in zip(scans, results[first:], strict=True):
            made.append(value)
    turned = _ints(node, "scan_output_directions", kept)
    ordered = [s[::-1] if t else s for s, t in zip(scans, turned, strict=True)]
    axes = _ints(node, "scan_output_axes", kept)
    joined = [_joined(run.builder, s, a) for s, a in zip(ordered, axes, strict=True)]
    return [*states, *joined]


CONTROLS: dict[str, Callable[[Importing, onnx.NodeProto, str], list[str]]] = {
    "If": if_, "Loop": loop, "Scan": scan,
}  # fmt: skip


def _computing(graph: onnx.GraphProto) -> int:
    """Nodes of a graph that are no constants."""
    return sum(node.op_type != "Constant" for node in graph.node)


def _check_unrolled(
    run: Importing, before: int, trip: int, body: onnx.GraphProto, where: str
) -> None:
    """`before`: what was imported when the loop began; nodes of loops within it count too."""
    run.imported += not body.node
    nodes = run.imported - before
    if nodes > UNROLLED_NODES or (not run.whole and trip > SHORT_TRIPS and nodes > SHORT_NODES):
        raise ControlFlowError(
            f"{where}: more than {trip} trips ({nodes} nodes) are too many to unroll; export the "
            "model without the loop"
        )


def _check_trips(run: Importing, trips: object, where: str) -> None:
    """Raises what leaves a loop to the run, if others may run it, where a size says how often."""
    if not is_size(trips):
        return
    if run.whole:
        raise UndecidedError(f"{where}: it loops {trips} times")
    raise ControlFlowError(f"{where}: only a run knows that it loops {trips} times")


def _element(builder: GraphBuilder, value: str, axis: int, place: int) -> str:
    shape = builder.shape(value)
    starts = tuple(place if d == axis else 0 for d in range(len(shape)))
    stops = tuple(place + 1 if d == axis else e for d, e in enumerate(shape))
    one = builder.op("slice", value, starts=starts, stops=stops, steps=(1,) * len(shape))
    return builder.op("reshape", one, shape=(*shape[:axis], *shape[axis + 1 :]))


def _joined(builder: GraphBuilder, values: Sequence[str], axis: int) -> str:
    """Values of equal shape along a new axis."""
    shape = builder.shape(values[0])
    at = axis % (len(shape) + 1)
    apart = [
        builder.op("reshape", v, shape=(*builder.shape(v)[:at], 1, *builder.shape(v)[at:]))
        for v in values
    ]
    return builder.op("concat", *apart, axis=at)


def _item(run: Importing, name: str, where: str) -> bool | int:
    """A condition or a count."""
    return _number(run, run.values[name], name, where)


def _number(run: Importing, value: str, name: str, where: str) -> bool | int:
    array = run.builder.evaluated(value)
    if array is None:
        error = ControlFlowError(
            f"{where}: {name!r} must be a constant, but it is computed from the model's inputs; "
            "export the model for one case"
        )
        error.value, error.inputs = name, run.builder.inputs_of(value)
        raise error
    item: bool | int = array.item()
    return item


def _ints(node: onnx.NodeProto, name: str, count: int) -> list[int]:
    return [int(v) for v in _attribute(node, name, [0] * count)]


def _attribute(node: onnx.NodeProto, name: str, default: Any) -> Any:
    found = (onnx.helper.get_attribute_value(a) for a in node.attribute if a.name == name)
    return next(found, default)


def _graph(node: onnx.NodeProto, name: str, where: str) -> onnx.GraphProto:
    graph: onnx.GraphProto | None = _attribute(node, name, None)
    if graph is None:
        raise ModelError(f"{where}: attribute {name} is missing; export the model again")
    return graph
