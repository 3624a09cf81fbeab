"""Run a graph by numpy, one op after the other. In: a graph and arrays for its inputs. Out: its
outputs. Slow and simple: the oracle that compiled models are compared with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

import numpy as np

from autotune.errors import FeedError
from autotune.graph.ir import Graph
from autotune.ops import OPS
from autotune.types import Array, is_real


def run_graph(
    graph: Graph,
    feeds: Mapping[str, Array],
    dtype: str = "float64",
    observe: Callable[[str, Array], None] | None = None,
) -> dict[str, Array]:
    """Outputs by public name, every floating-point value computed and returned in `dtype`.
    `observe` sees every node's output as it is computed.

    Raises FeedError where `feeds` are not the inputs' names, shapes and kinds."""
    check_feeds(graph, feeds)
    uses = Counter(i for node in graph.nodes for i in node.inputs)
    uses.update(value for _, value in graph.outputs)
    values: dict[str, Array] = {name: _widen(feeds[name], dtype) for name, _ in graph.inputs}

    def read(name: str) -> Array:
        # Constants are widened where they are used: a whole model in float64 is large.
        if name in graph.constants:
            return _widen(graph.constants[name], dtype)
        uses[name] -= 1
        return values[name] if uses[name] else values.pop(name)

    for node in graph.nodes:
        arrays = [read(i) for i in node.inputs]
        with np.errstate(all="ignore"):  # overflow and nan are IEEE's, as in compiled code
            result = np.asarray(OPS.get(node.op).reference(arrays, node.attributes))
        result = _widen(result, dtype)
        if observe is not None:
            observe(node.output, result)
        if uses[node.output]:
            values[node.output] = result
    return {name: read(value) for name, value in graph.outputs}


def check_feeds(graph: Graph, feeds: Mapping[str, Array]) -> None:
    """Raise FeedError where `feeds` do not match the graph's inputs."""
    wanted = {name: str(type_) for name, type_ in graph.inputs}
    if set(feeds) != set(wanted):
        raise FeedError(f"expected inputs {wanted}, got {sorted(feeds)}")
    for name, type_ in graph.inputs:
        array = feeds[name]
        floats = is_real(type_.dtype) and array.dtype.kind == "f"
        if tuple(array.shape) != type_.shape or not (floats or array.dtype.name == type_.dtype):
            got = f"{array.dtype.name}[{','.join(map(str, array.shape))}]"
            raise FeedError(f"input {name!r} must be {type_}, got {got}")


def _widen(array: Array, dtype: str) -> Array:
    return array.astype(dtype, copy=False) if array.dtype.kind == "f" else array
