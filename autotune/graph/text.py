"""Print a graph for people. In: a graph. Out: one line per input, constant, node and output.

graph tiny
  input  x: float32[1,8]
  const  w: float32[8,4]
  matmul_1: float32[1,4] = matmul(x, w)  # fc
  clip_1: float32[1,4] = clip(matmul_1) {max=6.0, min=0.0}  # act
  output y = clip_1
"""

from __future__ import annotations

from autotune.graph.ir import Graph, Node
from autotune.types import Attr


def graph_text(graph: Graph) -> str:
    """The graph as text; constants by name and type only."""
    lines = [f"graph {graph.name}"]
    lines += [f"  input  {name}: {type_}" for name, type_ in graph.inputs]
    lines += [f"  const  {name}: {graph.types[name]}" for name in graph.constants]
    lines += [f"  {node_text(graph, node)}" for node in graph.nodes]
    lines += [f"  output {name} = {value}" for name, value in graph.outputs]
    return "\n".join(lines) + "\n"


def node_text(graph: Graph, node: Node) -> str:
    """One node: its output, type, op, operands, attributes, and the model's name for it."""
    attrs = ", ".join(f"{k}={_attr_text(v)}" for k, v in node.attrs)
    line = f"{node.output}: {graph.types[node.output]} = {node.op}({', '.join(node.inputs)})"
    line += f" {{{attrs}}}" if attrs else ""
    return f"{line}  # {node.name}" if node.name and node.name != node.output else line


def _attr_text(value: Attr) -> str:
    if isinstance(value, tuple):
        return f"({','.join(map(_attr_text, value))})"
    return str(value)
