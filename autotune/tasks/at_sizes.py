"""A task with sizes known at run time, at given sizes. In: values of its symbols. Out: a task."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from autotune.sizes import SizeSymbol, symbols_of, value_at
from autotune.types import Attr, Layout, Task, TaskNode, TaskValue, TensorType


def task_symbols(task: Task) -> frozenset[SizeSymbol]:
    """Every symbol that a task's shapes depend on."""
    return frozenset().union(*(symbols_of(e) for v in task.values for e in v.type.shape))


def task_at(task: Task, values: Mapping[str, int]) -> Task:
    """The task where its symbols have these values. KeyError for one that is missing."""
    return dataclasses.replace(
        task,
        nodes=tuple(_node_at(node, values) for node in task.nodes),
        values=tuple(_value_at(value, values) for value in task.values),
    )


def layout_at(layout: Layout, values: Mapping[str, int]) -> Layout:
    strides = tuple(value_at(s, values) for s in layout.strides)
    return dataclasses.replace(layout, strides=strides)


def type_at(kind: TensorType, values: Mapping[str, int]) -> TensorType:
    return dataclasses.replace(kind, shape=tuple(value_at(e, values) for e in kind.shape))


def _node_at(node: TaskNode, values: Mapping[str, int]) -> TaskNode:
    attrs = tuple((name, _attr_at(value, values)) for name, value in node.attrs)
    return dataclasses.replace(node, attrs=attrs)


def _attr_at(value: Any, values: Mapping[str, int]) -> Attr:
    if isinstance(value, tuple):
        return tuple(_attr_at(v, values) for v in value)
    return value_at(value, values)  # of numbers and words: themselves


def _value_at(value: TaskValue, values: Mapping[str, int]) -> TaskValue:
    return dataclasses.replace(
        value, type=type_at(value.type, values), layout=layout_at(value.layout, values)
    )
