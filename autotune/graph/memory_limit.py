"""Check that a model fits into a machine's memory. In: a graph or tasks, and bytes. Out: nothing,
or a ModelError, before anything is drawn, computed or built.

What is counted has to be there at once whatever the schedules: inputs, outputs and weights of a
model, operands and results of a kernel.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from autotune.errors import ModelError
from autotune.types import ITEM_BYTES, Task, TensorType

if TYPE_CHECKING:
    from autotune.graph.ir import Graph


def check_model(graph: Graph, room_bytes: int) -> None:
    """Raise ModelError where inputs, outputs and weights are more than the room."""
    results = {name: graph.types[value] for name, value in graph.outputs}
    weights = sum(array.nbytes for array in graph.constants.values())
    check_tensors(dict(graph.inputs) | results, room_bytes, weights)


def check_tensors(types: Mapping[str, TensorType], room_bytes: int, weights: int = 0) -> None:
    """The same of tensors by name, beside so many bytes of weights."""
    total = weights + sum(t.nbytes for t in types.values())
    if total > room_bytes:
        name = max(types, key=lambda n: types[n].nbytes, default="")
        largest = f"{name!r} alone, {types[name]}, takes {gib(types[name].nbytes)}" if name else ""
        raise ModelError(_refusal(f"inputs, outputs and weights take {gib(total)}", room_bytes)
                         + (f" ({largest})" if largest else ""))  # fmt: skip


def check_tasks(tasks: Iterable[Task], room_bytes: int) -> None:
    """Raise ModelError where what a kernel reads and writes is more than the room."""
    for task in tasks:
        total = sum(
            sum(v.layout.span(v.type.shape)) * ITEM_BYTES[v.type.dtype] for v in task.params
        )
        if total > room_bytes:
            what = f"what kernel {task.key} reads and writes takes {gib(total)}"
            raise ModelError(_refusal(what, room_bytes))


def check_bytes(what: str, nbytes: int, room_bytes: int) -> None:
    """Raise ModelError where something takes more than the room."""
    if nbytes > room_bytes:
        raise ModelError(_refusal(f"{what} takes {gib(nbytes)}", room_bytes))


def gib(nbytes: int) -> str:
    return f"{nbytes / (1 << 30):.3g} GiB"


def _refusal(what: str, room_bytes: int) -> str:
    return (
        f"the model does not fit into memory: {what}, this machine has {gib(room_bytes)}; take "
        "smaller shapes, or a machine with more"
    )
