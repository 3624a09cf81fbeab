"""Control flow that a run decides. In: an If, Loop or Scan, and how its graphs are run. Out: the
values of its outputs.

Of branches, the one that is taken is compiled and run. A loop's body is compiled once where its
values keep their shapes; then all further trips are one native call (`autotune.runtime.trips`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol
from weakref import WeakKeyDictionary

import numpy as np
import onnx
from onnx import helper, numpy_helper

from autotune.errors import ModelError, UnsupportedOpError
from autotune.fallback.parts import OwnPart, RecutError, Values
from autotune.fallback.stages import Stage, node_id, read_within, tensors_of
from autotune.runtime.model import CompiledModel
from autotune.runtime.trips import Carrying, Trips, UnevenBodyError
from autotune.types import Array

MOST_COMPILED = 4
"""Times that one run compiles a loop's body before others run the loop, if they may: one whose
shapes, or values that decide shapes, change with every trip."""
ENDLESS = 1 << 62
"""Trips of a loop without a bound."""


class InnerGraph(Protocol):
    """A graph within a node, as it is run."""

    @property
    def own(self) -> bool: ...
    @property
    def deciding(self) -> frozenset[str]: ...
    @property
    def compiled(self) -> int: ...
    @property
    def parts(self) -> Sequence[object]: ...

    def run(self, feeds: Mapping[str, Any]) -> dict[str, Any]: ...
    def close(self) -> None: ...


MakeGraph = Callable[[onnx.ModelProto], InnerGraph]


class _ControlPart:
    """One node, and the graphs within it."""

    def __init__(
        self, stage: Stage, model: onnx.ModelProto, make: MakeGraph, fallback: bool
    ) -> None:
        """`fallback`: whether others may run the node."""
        (self._node,) = stage.nodes
        self._fallback = fallback
        self._tensors = tensors_of(model.graph)
        self._constants = {
            name: numpy_helper.to_array(self._tensors[name])
            for name in self._node.input
            if name in self._tensors
        }
        graphs = {a.name: a.g for a in self._node.attribute if a.HasField("g")}
        self._models = {name: self._as_model(model, graph) for name, graph in graphs.items()}
        self._make = make
        self._graphs: dict[str, InnerGraph] = {}

    @property
    def own(self) -> bool:
        return all(graph.own for graph in self._graphs.values())

    @property
    def deciding(self) -> frozenset[str]:
        return frozenset(name for graph in self._graphs.values() for name in graph.deciding)

    @property
    def compiled(self) -> int:
        return sum(graph.compiled for graph in self._graphs.values())

    def close(self) -> None:
        for graph in self._graphs.values():
            graph.close()

    def _as_model(self, model: onnx.ModelProto, graph: onnx.GraphProto) -> onnx.ModelProto:
        """A graph with what it takes from around it as further inputs, or as constants."""
        inner = onnx.ModelProto(ir_version=model.ir_version, graph=graph)
        inner.opset_import.extend(model.opset_import)
        for name in read_within(graph):
            if name in self._tensors:
                inner.graph.initializer.append(self._tensors[name])
            else:
                inner.graph.input.append(onnx.ValueInfoProto(name=name))
        return inner

    def _graph(self, name: str) -> tuple[onnx.GraphProto, InnerGraph]:
        if name not in self._models:
            raise ModelError(
                f"operator {self._node.op_type} (node {self._node.name!r}): attribute {name} is "
                "missing; export the model again"
            )
        if name not in self._graphs:
            self._graphs[name] = self._make(self._models[name])
        return self._models[name].graph, self._graphs[name]

    def _named(self, values: Sequence[Any]) -> dict[str, Any]:
        pairs = zip(self._node.output, values, strict=False)
        return {name: value for name, value in pairs if name}


class BranchPart(_ControlPart):
    """An If: the branch that is taken, in a graph of its own."""

    def run(self, values: Values) -> dict[str, Any]:
        """Raises what compiling does."""
        found = {**self._constants, **values}
        taken = bool(np.asarray(found[self._node.input[0]]).item())
        graph, inner = self._graph("then_branch" if taken else "else_branch")
        made = inner.run({i.name: found[i.name] for i in graph.input})
        return self._named([made[o.name] for o in graph.output])


class _LoopingPart(_ControlPart):
    """A node with a body that runs several times."""

    def __init__(
        self, stage: Stage, model: onnx.ModelProto, make: MakeGraph, fallback: bool
    ) -> None:
        super().__init__(stage, model, make, fallback)
        self._loops: WeakKeyDictionary[CompiledModel, Trips | None] = WeakKeyDictionary()
        """What runs a model of the body in a native loop, if that can be done, as long as the body
        keeps the model."""

    def close(self) -> None:
        self._loops.clear()
        super().close()

    def _trips(
        self, how: Carrying, given: dict[str, Any], rows: Mapping[str, Array], trips: int
    ) -> tuple[list[Any], list[Array | None]]:
        """(what is carried behind the last trip, rows of what is collected; None: no trip).
        `given`: what the body takes in the first trip but for `rows`, whose first axis is trips.
        Raises RecutError where others had better run it."""
        _, body = self._graph("body")
        before, done, going = body.compiled, 0, True
        found: list[list[Array]] = [[] for _ in how.collected]
        while going and done < trips:
            now = given | {name: array[done] for name, array in rows.items()}
            if how.counter:
                now[how.counter] = np.array(done, np.int64)
            loop = self._native(body, now)
            if loop is not None:
                steps = {name: array.strides[0] for name, array in rows.items()}
                _, states, blocks = loop.run(now, steps, done, trips - done)
                given |= dict(zip((name for name, _ in how.carried), states, strict=True))
                for block, array in zip(found, blocks, strict=True):
                    block.append(array)
                break
            made = now | body.run(now)
            new = {name: made[then] for name, then in how.carried}
            self._look(body, how, now, new)
            given |= new
            for block, name in zip(found, how.collected, strict=True):
                block.append(np.asarray(made[name])[None])
            done, going = done + 1, not how.going or bool(np.asarray(made[how.going]).item())
            self._check_compiled(body.compiled - before)
        ends = [given[name] for name, _ in how.carried]
        return ends, [np.concatenate(blocks) if blocks else None for blocks in found]

    def _native(self, body: InnerGraph, given: Mapping[str, Any]) -> Trips | None:
        """What runs the trips from here on, if the body has been looked at with these shapes."""
        model = _single(body, given)
        return None if model is None else self._loops.get(model)

    def _look(
        self, body: InnerGraph, how: Carrying, old: Mapping[str, Any], new: Mapping[str, Any]
    ) -> None:
        """See whether a trip leaves shapes as they are, so that others can follow natively."""
        model = _single(body, old)
        asked = not how.going or how.going in dict(how.carried) or how.going not in old
        same = all(_kind(old[name]) == _kind(value) for name, value in new.items())
        if model is None or model in self._loops or not asked or not same:
            return
        try:
            self._loops[model] = Trips(model, how)
        except UnevenBodyError:
            self._loops[model] = None

    def _check_compiled(self, count: int) -> None:
        if count <= MOST_COMPILED or not self._fallback:
            return
        node = self._node
        raise RecutError(
            UnsupportedOpError(
                f"operator {node.op_type} (node {node.name!r}): shapes change with every trip"
            ),
            [node_id(node)],
        )


class LoopPart(_LoopingPart):
    """A Loop."""

    def run(self, values: Values) -> dict[str, Any]:
        """Raises what compiling does, and RecutError."""
        found, node = {**self._constants, **values}, self._node
        graph, _ = self._graph("body")
        count, first = (found.get(name) if name else None for name in node.input[:2])
        trips = ENDLESS if count is None else int(np.asarray(count).item())
        going = first is None or bool(np.asarray(first).item())
        takes, gives = [i.name for i in graph.input], [o.name for o in graph.output]
        states = [found[name] for name in node.input[2:]]
        kept = len(states)
        own = dict(zip(takes[: 2 + kept], (0, np.array(True), *states), strict=True))
        how = Carrying(
            carried=tuple(zip(takes[1 : 2 + kept], gives, strict=False)),
            collected=tuple(gives[1 + kept :]),
            counter=takes[0],
            going=gives[0],
        )
        around = {name: found[name] for name in takes[2 + kept :]}
        ends, rows = self._trips(how, own | around, {}, trips if going else 0)
        infos = graph.output[1 + kept :]
        scans = [_no_rows(i) if r is None else r for i, r in zip(infos, rows, strict=True)]
        return self._named([*ends[1:], *scans])


class ScanPart(_LoopingPart):
    """A Scan: the body runs once for every element of its inputs along an axis."""

    def run(self, values: Values) -> dict[str, Any]:
        """Raises what compiling does, RecutError, and ModelError for inputs of several lengths."""
        found, node = {**self._constants, **values}, self._node
        graph, _ = self._graph("body")
        options = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        count = int(options["num_scan_inputs"])
        kept = len(node.input) - count
        takes, gives = [i.name for i in graph.input], [o.name for o in graph.output]
        axes, backward = (_ints(options, f"scan_input_{n}", count) for n in ("axes", "directions"))
        names = takes[kept : kept + count]
        rows = {
            name: _rows(np.asarray(found[given]), axis, bool(back))
            for name, given, axis, back in zip(
                names, node.input[kept:], axes, backward, strict=True
            )
        }
        lengths = {len(array) for array in rows.values()}
        if len(lengths) != 1:
            raise ModelError(
                f"operator Scan (node {node.name!r}): expected inputs of one length, got "
                f"{', '.join(map(str, sorted(lengths)))}"
            )
        own = {name: found[given] for name, given in zip(takes, node.input[:kept], strict=False)}
        around = {name: found[name] for name in takes[kept + count :]}
        how = Carrying(
            carried=tuple(zip(takes[:kept], gives, strict=False)),
            collected=tuple(gives[kept:]),
            moving=tuple(names),
        )
        ends, made = self._trips(how, own | around, rows, *lengths)
        axes, backward = (
            _ints(options, f"scan_output_{n}", len(made)) for n in ("axes", "directions")
        )
        scans = [
            np.moveaxis((_no_rows(i) if m is None else m)[:: -1 if back else 1], 0, axis)
            for i, m, axis, back in zip(graph.output[kept:], made, axes, backward, strict=True)
        ]
        return self._named([*ends, *scans])


def _single(body: InnerGraph, given: Mapping[str, Any]) -> CompiledModel | None:
    """The one compiled model that a body is for such values."""
    if len(body.parts) != 1:
        return None
    (part,) = body.parts
    return part.single(given) if isinstance(part, OwnPart) else None


def _kind(value: Any) -> object:
    array = np.asarray(value) if isinstance(value, np.ndarray | np.generic) else None
    return None if array is None else (array.dtype, array.shape)


def _rows(array: Array, axis: int, back: bool) -> Array:
    """An input by trips, each of whose rows lies in one piece."""
    rows = np.ascontiguousarray(np.moveaxis(array, axis, 0))
    return rows[::-1] if back else rows


def _no_rows(info: onnx.ValueInfoProto) -> Array:
    """What no trip collects: no rows, of the shape that the body declares."""
    kind = info.type.tensor_type
    dtype = helper.tensor_dtype_to_np_dtype(kind.elem_type or onnx.TensorProto.FLOAT)
    return np.zeros((0, *(dim.dim_value for dim in kind.shape.dim)), dtype)


def _ints(options: Mapping[str, Any], name: str, count: int) -> list[int]:
    return [int(v) for v in options.get(name, [0] * count)]
