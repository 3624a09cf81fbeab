"""Models whose state grows with every call (key-value caches), for states of some capacity, partly
filled. In: a model with symbols, which outputs become which inputs. Out: models for a capacity and
a number of new rows, with one more input: how many rows are filled.

What depends on the filled length is found by importing the model at several lengths:
- `concat(past, new)` puts the new rows behind the filled ones: a scatter;
- dimensions whose extent changes have rows that mean nothing yet: a softmax along them adds minus
  infinity there, so that products along them meet zeros; other sums along them are refused;
- constants that change (positions, causal masks) are rows of those of the longest call: a gather.
"""

from __future__ import annotations

import dataclasses
import itertools
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from autotune.errors import FeedError, ModelError, UnsupportedOpError
from autotune.frontend.symbolic import SymbolicModel
from autotune.graph.ir import Graph, Node
from autotune.graph.rewriter import Rewriter, kind_of
from autotune.runtime.model import CompiledModel
from autotune.types import Array, TensorType

CompileFilled = Callable[[Graph], CompiledModel]
LENGTH = "filled.length"
"""The input that says how many rows are filled: int64[1]."""
PROBED_PAST, PROBED_STEP = 16, 5
"""Rows of the past, and of a call, with which a model is imported to find its growing states: any
two numbers that differ from each other and from 1."""
OTHER_SIZES = (2, 3, 7, 11, 13)
"""Sizes at which a model is imported to see what its symbols are; no two may be taken for one."""
MOVES = frozenset(("reshape", "transpose", "expand", "copy"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Roles:
    """What a model's symbols count, and along which axis its states grow."""

    past: frozenset[str]
    """Rows of the states."""
    step: frozenset[str]
    """Rows that a call adds."""
    total: frozenset[str]
    """Both."""
    axes: Mapping[str, int]
    """By state."""

    def sizes(self, given: Mapping[str, int], past: int, step: int) -> dict[str, int]:
        """Sizes of all symbols; of those that are none of the roles, as given."""
        named = ((self.past, past), (self.step, step), (self.total, past + step))
        return dict(given) | {symbol: size for some, size in named for symbol in some}


def growing_axes(model: SymbolicModel, state: Mapping[str, str]) -> dict[str, int]:
    """By state that grows, the axis: that of a symbol that no other input has. Raises FeedError
    for a state that grows in two directions."""
    fed = {d for n, k in model.inputs.items() if n not in state for d in k.shape}
    axes = {}
    for name in state:
        shape = model.inputs[name].shape
        found = [a for a, dim in enumerate(shape) if isinstance(dim, str) and dim not in fed]
        if len(found) > 1:
            raise FeedError(
                f"state {name!r}: dimensions {', '.join(str(shape[a]) for a in found)} are open; "
                "expected one that grows: fix the others with shapes="
            )
        if found:
            axes[name] = found[0]
    return axes


def roles_of(model: SymbolicModel, state: Mapping[str, str]) -> Roles:
    """Found by importing the model with sizes of which no two are equal. Raises FeedError."""
    axes = growing_axes(model, state)
    past = frozenset(str(model.inputs[name].shape[axis]) for name, axis in axes.items())
    others = [symbol for symbol in model.symbols if symbol not in past]
    said = "no symbol of its inputs is that"
    # Symbols of neither role first: a batch may be as long as a step.
    for kinds in sorted(itertools.product("-st", repeat=len(others)), key=_roles_of_others):
        by_kind = {
            kind: [o for o, k in zip(others, kinds, strict=True) if k == kind] for kind in "-st"
        }
        if len(by_kind["-"]) > len(OTHER_SIZES):
            continue
        roles = Roles(
            past=past, step=frozenset(by_kind["s"]), total=frozenset(by_kind["t"]), axes=axes
        )
        free = dict(zip(by_kind["-"], OTHER_SIZES, strict=False))
        step = PROBED_STEP if roles.step else 1
        try:
            graph = model.graph(roles.sizes(free, PROBED_PAST, step))
        except UnsupportedOpError:
            raise
        except ModelError as error:
            said = str(error)
            continue
        made = dict(graph.outputs)
        if all(
            graph.types[made[state[n]]].shape[a : a + 1] == (PROBED_PAST + step,)
            for n, a in axes.items()
        ):
            return roles
    raise FeedError(
        f"state: {', '.join(axes)} must become longer by the rows that a call adds; {said}"
    )


def _roles_of_others(kinds: tuple[str, ...]) -> int:
    return -kinds.count("-")


class GrowingModel:
    """Graphs of a model for states of some capacity."""

    def __init__(self, model: SymbolicModel, state: Mapping[str, str]) -> None:
        """Raises FeedError."""
        self._model, self._state = model, dict(state)
        self.roles = roles_of(model, state)

    def graph(self, sizes: Mapping[str, int], capacity: int, step: int) -> Graph:
        """The model for `step` new rows beside up to `capacity` - `step` filled ones. `sizes`: of
        symbols that are neither. Raises UnsupportedOpError."""
        roles, past = self.roles, capacity - step
        here, before = (
            self._model.graph(roles.sizes(sizes, rows, step)) for rows in (past, past - 1)
        )
        whole = self._model.graph(roles.sizes(sizes, 0, capacity)) if roles.step else here
        made = _Filled(here, before, whole, state=self._state, axes=roles.axes, step=step)
        return made.graph()

    def understood(self) -> bool:
        """Whether there are such graphs."""
        others = {*self._model.symbols} - self.roles.past - self.roles.step - self.roles.total
        sizes = dict(zip(sorted(others), OTHER_SIZES, strict=False))
        step = PROBED_STEP if self.roles.step else 1
        try:
            self.graph(sizes, PROBED_PAST + step, step)
        except UnsupportedOpError:
            return False
        return True


class GrowingModels:
    """The models of all capacities and steps that were asked for. Safe to call from several
    threads, which take turns."""

    length = LENGTH

    def __init__(
        self, model: SymbolicModel, state: Mapping[str, str], compiled: CompileFilled
    ) -> None:
        """Raises FeedError."""
        self._graphs, self._compiled = GrowingModel(model, state), compiled
        self.inputs, self.outputs = model.inputs, model.outputs
        roles = self._graphs.roles
        self.axes, self.step, self.total = roles.axes, roles.step, roles.total
        self._kept: dict[object, CompiledModel] = {}
        self._lock = threading.Lock()

    def understood(self) -> bool:
        """Whether there are models for states of some capacity, partly filled."""
        return self._graphs.understood()

    def at(self, sizes: Mapping[str, int], capacity: int, step: int) -> CompiledModel:
        """Raises UnsupportedOpError, and what compiling does."""
        key = (tuple(sorted(sizes.items())), capacity, step)
        found = self._kept.get(key)
        if found is not None:
            return found
        with self._lock:
            if key not in self._kept:
                self._kept[key] = self._compiled(self._graphs.graph(sizes, capacity, step))
            return self._kept[key]


class _Filled:
    """One graph in the making, beside the same one for a row less, and for one call with all."""

    def __init__(
        self,
        graph: Graph,
        before: Graph,
        whole: Graph,
        *,
        state: Mapping[str, str],
        axes: Mapping[str, int],
        step: int,
    ) -> None:
        if [n.op for n in graph.nodes] != [n.op for n in before.nodes]:
            raise _refusal("its nodes depend on how many rows there are")
        self._graph, self._before, self._whole = graph, before, whole
        self._axes, self._step = axes, step
        self._new = Rewriter(graph)
        self._presents = {dict(graph.outputs)[state[name]]: name for name in axes}
        first = next(iter(axes))
        self._capacity = dict(graph.inputs)[first].shape[axes[first]] + step
        self._grown = dict(self._grown_axes())
        self._hidden: dict[str, str] = {}
        self._zeros = {
            n.output for n in graph.nodes if n.op == "scalar" and n.attributes["value"] == 0
        }
        """Values that are 0 in rows that mean nothing."""

    def graph(self) -> Graph:
        new, kinds = self._new, dict(self._graph.inputs)
        for name, axis in self._axes.items():
            old = kinds[name]
            shape = (*old.shape[:axis], self._capacity, *old.shape[axis + 1 :])
            kinds[name] = TensorType(dtype=old.dtype, shape=shape)
        kinds[LENGTH] = TensorType(dtype="int64", shape=(1,))
        new.types |= kinds
        like = self._graph.nodes[0]
        places = new.constant(np.arange(self._step), "new.rows")
        self._places = new.emit("add", (LENGTH, places), like)
        self._constants(like)
        for node in self._graph.nodes:
            self._node(node)
        made = new.finish()
        types = {**made.types, LENGTH: kinds[LENGTH]}
        return dataclasses.replace(made, inputs=tuple(kinds.items()), types=types)

    def _grown_axes(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        """The dimensions of every value that change with the length."""
        pairs = [
            (n.output, o.output)
            for n, o in zip(self._graph.nodes, self._before.nodes, strict=True)
        ]
        pairs += [(n, n) for n, _ in self._graph.inputs]
        pairs += [(n, n) for n in self._graph.constants if n in self._before.constants]
        for name, other in pairs:
            one, two = self._graph.types[name].shape, self._before.types[other].shape
            if len(one) != len(two):
                raise _refusal(f"the rank of {name!r} depends on how many rows there are")
            grown = tuple(a for a, (i, j) in enumerate(zip(one, two, strict=True)) if i != j)
            if name not in self._axes and any(one[a] != self._capacity for a in grown):
                raise _refusal(f"{name!r} has its rows in one dimension with others")
            yield name, grown

    def _constants(self, like: Node) -> None:
        """Those that change are rows of the longest call's."""
        for name, array in self._graph.constants.items():
            other = self._before.constants.get(name)
            if other is None:
                raise _refusal(f"constant {name!r} is there for some lengths only")
            same = array.shape == other.shape and np.array_equal(array, other, equal_nan=True)
            if same:
                continue
            found = self._rows_of(array, other)
            if found is not None:
                table = self._new.constant(found[0], name)
                self._new.replace(
                    name, self._new.emit("gather", (table, self._places), like, axis=found[1])
                )
            elif not _begins(array, other):
                raise _refusal(f"constant {name!r} depends on how many rows there are")

    def _rows_of(self, array: Array, other: Array) -> tuple[Array, int] | None:
        """(constant of the longest call, axis), of which `array` are the last rows, and `other`
        those before."""
        for table in self._whole.constants.values():
            if table.dtype != array.dtype or table.ndim != array.ndim:
                continue
            for axis in range(table.ndim):
                shape = (*array.shape[:axis], self._capacity, *array.shape[axis + 1 :])
                if table.shape != shape or array.shape[axis] != self._step:
                    continue
                last = np.arange(self._capacity - self._step, self._capacity)
                part = table.take(last - 1, axis)[tuple(map(slice, other.shape))]
                if np.array_equal(table.take(last, axis), array) and np.array_equal(part, other):
                    return table, axis
        return None

    def _node(self, node: Node) -> None:
        new, grown = self._new, self._grown[node.output]
        if node.output in self._presents:
            self._put(node, self._presents[node.output])
            return
        if any(i in self._axes for i in node.inputs):
            raise _refusal(f"{_name(node)} reads the state beside what joins it with new rows")
        before = [i for i in node.inputs if self._grown.get(i)]
        if not before:
            new.keep(node)
            return
        zero = any(i in self._zeros for i in before)
        if node.op == "softmax":
            self._softmax(node)
        elif node.op == "matmul":
            self._product(node)
        elif grown and (node.op in MOVES or kind_of(node.op) == "elementwise"):
            new.keep(node)
            if zero and (node.op in (*MOVES, "mul") or self._chosen_zero(node)):
                self._zeros.add(node.output)
        else:
            raise _refusal(f"{_name(node)} puts together rows that mean nothing yet")

    def _chosen_zero(self, node: Node) -> bool:
        """Whether all that is chosen from is 0 in rows that mean nothing, or anywhere: softmaxes
        in place of whose NaN a 0 stands."""
        return node.op == "where" and all(i in self._zeros for i in node.inputs[1:])

    def _put(self, node: Node, state: str) -> None:
        """concat(past, rows) -> scatter of the rows behind what is filled."""
        axis = self._axes[state]
        if node.op != "concat" or node.inputs[:1] != (state,) or len(node.inputs) != 2:
            raise _refusal(f"{_name(node)} does more than join state {state!r} with new rows")
        if node.attributes["axis"] not in (axis, axis - len(self._graph.types[node.output].shape)):
            raise _refusal(f"{_name(node)} joins state {state!r} along another dimension")
        new, rows = self._new, self._new.new(node.inputs[1])
        shape = tuple(self._step if a == axis else 1 for a in range(len(new.shape(rows))))
        places = new.emit("reshape", (self._places,), node, shape=shape)
        new.replace(
            node.output,
            new.emit("scatter", (state, places, rows), node, axis=axis, reduction="none"),
        )

    def _softmax(self, node: Node) -> None:
        new, kind = self._new, self._graph.types[node.output]
        axis = int(str(node.attributes["axis"])) % len(kind.shape)
        if axis not in self._grown[node.output]:
            new.keep(node)
            return
        shape = tuple(self._capacity if a == axis else 1 for a in range(len(kind.shape)))
        mask = self._mask(node, shape, kind.dtype)
        scores = new.emit("add", (new.inputs(node)[0], mask), node)
        new.replace(node.output, new.emit("softmax", (scores,), node, **node.attributes))
        self._zeros.add(node.output)

    def _mask(self, node: Node, shape: tuple[int, ...], dtype: str) -> str:
        """0 in rows that are filled behind the call, else minus infinity."""
        key = f"{dtype}{shape}"
        if key not in self._hidden:
            new = self._new
            row = new.constant(np.arange(self._capacity).reshape(shape), "row")
            step = new.constant(np.array([self._step]), "new.rows")
            end = new.emit("add", (LENGTH, step), node)
            late = new.emit("ge", (row, end), node)
            low, zero = (new.constant(np.asarray(v, dtype), "hidden") for v in (-np.inf, 0))
            self._hidden[key] = new.emit("where", (late, low, zero), node)
        return self._hidden[key]

    def _product(self, node: Node) -> None:
        """Sums along rows that mean nothing must have zeros there."""
        left, right = node.inputs
        rank = len(self._graph.types[right].shape)
        inner = rank - (1 if node.attributes.get("transpose_b") else 2)
        along = (
            len(self._graph.types[left].shape) - 1 in self._grown.get(left, ()),
            inner in self._grown.get(right, ()),
        )
        if any(along) and not (left in self._zeros or right in self._zeros):
            raise _refusal(f"{_name(node)} sums over rows that mean nothing yet")
        self._new.keep(node)


def _begins(array: Array, other: Array) -> bool:
    """Whether a constant is another one and what follows it."""
    parts = tuple(map(slice, other.shape))
    return array.ndim == other.ndim and np.array_equal(array[parts], other, equal_nan=True)


def _name(node: Node) -> str:
    return f"{node.op} ({node.name or node.output})"


def _refusal(what: str) -> UnsupportedOpError:
    return UnsupportedOpError(f"state: its growth is not understood: {what}; give it a fixed size")
