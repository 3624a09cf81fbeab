"""Check a graph's invariants. In: a graph. Out: nothing, or a VerifyError naming the offender."""

from __future__ import annotations

from autotune.errors import ModelError, VerifyError
from autotune.graph.ir import Graph, Node
from autotune.ops import OPS
from autotune.types import TensorType


def verify_graph(graph: Graph) -> None:
    """Names are unique, nodes in topological order and typed as their op infers, outputs exist.

    Raises VerifyError: the graph was built or rewritten wrongly."""
    seen: set[str] = set()
    for name, type_ in graph.inputs:
        _define(name, seen)
        _expect_type(graph, name, type_)
    for name, array in graph.constants.items():
        _define(name, seen)
        _expect_type(
            graph, name, TensorType(dtype=array.dtype.name, shape=tuple(map(int, array.shape)))
        )
    for node in graph.nodes:
        _check_node(graph, node, seen)
        _define(node.output, seen)
    _check_outputs(graph, seen)
    if extra := set(graph.types) - seen:
        raise VerifyError(f"types of values that nothing defines: {_some(extra)}; drop them")


def _check_node(graph: Graph, node: Node, seen: set[str]) -> None:
    if node.op not in OPS:
        raise VerifyError(f"{_where(node)}: there is no op {node.op!r}")
    for value in node.inputs:
        if value not in seen:
            raise VerifyError(
                f"{_where(node)} reads {value!r}, which is not defined before it; "
                "nodes must be in topological order"
            )
    if list(node.attrs) != sorted(node.attrs, key=lambda a: a[0]):
        raise VerifyError(f"{_where(node)}: attributes must be sorted by name, got {node.attrs}")
    try:
        inferred = OPS.get(node.op).infer([graph.types[i] for i in node.inputs], node.attributes)
    except ModelError as error:
        raise VerifyError(f"{_where(node)}: {error}") from error
    _expect_type(graph, node.output, inferred)


def _check_outputs(graph: Graph, seen: set[str]) -> None:
    if not graph.outputs:
        raise VerifyError(f"graph {graph.name!r} has no outputs")
    public = [name for name, _ in graph.outputs]
    if len(set(public)) != len(public):
        raise VerifyError(f"output names must be unique, got {public}")
    for name, value in graph.outputs:
        if value not in seen:
            raise VerifyError(f"output {name!r} is value {value!r}, which nothing defines")


def _define(name: str, seen: set[str]) -> None:
    if name in seen:
        raise VerifyError(f"value {name!r} is defined twice; names must be unique")
    seen.add(name)


def _expect_type(graph: Graph, name: str, expected: TensorType) -> None:
    got = graph.types.get(name)
    if got != expected:
        raise VerifyError(f"value {name!r} has type {got} in `types`, expected {expected}")


def _where(node: Node) -> str:
    return f"node {node.name!r} ({node.output} = {node.op})"


def _some(names: set[str]) -> str:
    return ", ".join(sorted(names)[:5])
