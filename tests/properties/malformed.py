"""Damaged models: the standard's node tests with something about them changed.

In: a seed. Out: models whose inputs, types, shapes, attributes or constants are not what they
were: left out, given twice, of another rank or type, huge, negative or nothing. `check` says what
is wrong with how the frontend takes them: anything raised but the project's own errors, memory
that was taken before a refusal, and time.

    python -m tests.properties.malformed FIRST LAST      prints a line for each that is wrong
"""

from __future__ import annotations

import functools
import resource
import signal
import sys
import traceback
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from autotune.errors import InputError
from autotune.frontend.onnx.importer import import_model
from autotune.graph.pipeline import optimize
from tests.graph_verify import verify_graph

SECONDS, BYTES = 20, 4 << 30
"""Of one model, and of the process that has them all."""
EXTENTS = (-1, 0, 1, 2, 3, 7, 2**31, 2**40, 2**62, -(2**31), -(2**62))
TYPES = (1, 2, 3, 6, 7, 9, 10, 11, 16, 8, 14, 0, 99)


@functools.lru_cache(maxsize=1)
def cases() -> tuple[onnx.ModelProto, ...]:
    """One model of every kind of node, in the order of their names."""
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = collect_testcases(None)
    kinds: dict[tuple[str, ...], onnx.ModelProto] = {}
    for case in sorted((c for c in found if c.model is not None), key=lambda c: str(c.name)):
        model = case.model
        if model.graph.node and _static(model):
            nodes = tuple(f"{n.op_type}{len(n.input)}" for n in model.graph.node)
            kinds.setdefault(nodes, model)
    return tuple(kinds.values())


def _static(model: onnx.ModelProto) -> bool:
    return all(i.type.HasField("tensor_type") for i in model.graph.input)


def damaged(seed: int) -> onnx.ModelProto:
    """A model with one to three changes."""
    rng = np.random.default_rng(seed)
    model = onnx.ModelProto()
    models = cases()
    model.CopyFrom(models[int(rng.integers(len(models)))])
    if rng.integers(2):
        _fix_inputs(model, rng)
    for _ in range(int(rng.integers(1, 4))):
        CHANGES[int(rng.integers(len(CHANGES)))](model, rng)
    return model


def _pick(rng: np.random.Generator, choices: Sequence[Any]) -> Any:
    return choices[int(rng.integers(len(choices)))]


def _fix_inputs(model: onnx.ModelProto, rng: np.random.Generator) -> None:
    """Inputs of few elements as constants: shapes, axes, pads and counts are read at import."""
    kept = []
    for info in model.graph.input:
        kind = info.type.tensor_type
        shape = [d.dim_value for d in kind.shape.dim]
        if kind.elem_type in (6, 7) and int(np.prod(shape)) <= 16 and rng.integers(4):
            dtype = helper.tensor_dtype_to_np_dtype(kind.elem_type)
            values = [_pick(rng, (0, 1, 1, 2, 3, *EXTENTS)) for _ in range(int(np.prod(shape)))]
            array = np.array(values).reshape(shape).astype(dtype)
            model.graph.initializer.append(numpy_helper.from_array(array, info.name))
        else:
            kept.append(info)
    del model.graph.input[:]
    model.graph.input.extend(kept)


def _node(model: onnx.ModelProto, rng: np.random.Generator) -> onnx.NodeProto:
    return _pick(rng, list(model.graph.node))


def drop_input(model: onnx.ModelProto, rng: np.random.Generator) -> None:
    node = _node(model, rng)
    if node.input:
        at = int(rng.integers(len(node.input)))
        if rng.integers(2):
            node.input[at] = ""
        else:
            del node.input[at]


def repeat_input(model: onnx.ModelProto, rng: np.random.Generator) -> None:
    node = _node(model, rng)
    if node.input:
        node.input.insert(int(rng.integers(len(node.input) + 1)), _pick(rng, list(node.input)))


def swap_inputs(model: onnx.ModelProto, rng: np.random.Generator) -> None:
    node = _node(model, rng)
    order = list(node.input)
    rng.shuffle(order)
    node.input[:] = order


def change_shape(model: onnx.ModelProto, rng: np.random.Generator) -> None:
    if not model.graph.input:
        return
    dims = _pick(rng, list(model.graph.input)).type.tensor_type.shape.dim
    how = int(rng.integers(3))
    if how == 0 and dims:
        del dims[int(rng.integers(len(dims)))]
    elif how == 1:
        dims.add().dim_value = _pick(rng, (1, 2, 3, 1 << 20))
    elif dims:
        dims[int(rng.integers(len(dims)))].dim_value = _pick(rng, (1, 2, 3, 5, 1 << 20))


def change_type(model: onnx.ModelProto, rng: np.random.Generator) -> None:
    if model.graph.input:
        info = _pick(rng, list(model.graph.input))
        info.type.tensor_type.elem_type = _pick(rng, TYPES)


def change_attribute(model: onnx.ModelProto, rng: np.random.Generator) -> None:
    node = _node(model, rng)
    if not node.attribute:
        return
    attribute = _pick(rng, list(node.attribute))
    value = helper.get_attribute_value(attribute)
    name = attribute.name
    if isinstance(value, int):
        new: Any = _pick(rng, (*EXTENTS, 2.5, "x", [1, 2], []))
    elif isinstance(value, float):
        new = _pick(rng, (0.0, -1.0, float("inf"), float("nan"), 1e38, 3, "x"))
    elif isinstance(value, bytes):
        new = _pick(rng, ("", "nothing", b"\xff\xfe", 3))
    elif isinstance(value, list) and value:
        new = _changed_list(value, rng)
    else:
        new = _pick(rng, (1, "x", [1.5]))
    node.attribute.remove(attribute)
    if rng.integers(5) and new != []:
        node.attribute.append(helper.make_attribute(name, new))


def _changed_list(value: list[Any], rng: np.random.Generator) -> Any:
    how, at = int(rng.integers(4)), int(rng.integers(len(value)))
    if how == 0:
        return value[:at]
    if how == 1:
        return [*value, value[at]]
    if how == 2 and isinstance(value[0], int):
        return [*value[:at], _pick(rng, EXTENTS), *value[at + 1 :]]
    return _pick(rng, (3, "x", ["x"], [0.5] * len(value)))


def change_constant(model: onnx.ModelProto, rng: np.random.Generator) -> None:
    if not model.graph.initializer:
        return
    tensor = _pick(rng, list(model.graph.initializer))
    how = int(rng.integers(4))
    if how == 0 and tensor.dims:
        tensor.dims[0] = _pick(rng, (0, 1, 5, -1, 1 << 40))
    elif how == 1:
        tensor.data_type = _pick(rng, TYPES)
    elif how == 2:
        array = np.array(_pick(rng, EXTENTS), np.int64)
        tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    else:
        array = np.array([_pick(rng, EXTENTS) for _ in range(int(rng.integers(5)))], np.int64)
        tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))


def change_outputs(model: onnx.ModelProto, rng: np.random.Generator) -> None:
    node = _node(model, rng)
    if rng.integers(2):
        node.output.append("another")
    elif node.output:
        node.output[int(rng.integers(len(node.output)))] = ""


def change_opset(model: onnx.ModelProto, rng: np.random.Generator) -> None:
    model.opset_import[0].version = int(_pick(rng, (7, 9, 11, 13, 18, 21, 24)))


CHANGES = (
    drop_input, drop_input, repeat_input, swap_inputs, change_shape, change_shape, change_type,
    change_attribute, change_attribute, change_attribute, change_constant, change_constant,
    change_outputs, change_opset,
)  # fmt: skip


def check(model: onnx.ModelProto) -> str:
    """What is wrong with how the frontend takes a model; empty where nothing is."""
    try:
        graph = import_model(model, {})
        verify_graph(graph)
        verify_graph(optimize(graph))
    except InputError as error:
        if isinstance(error.__cause__, MemoryError):
            return f"took memory before it was refused: {error}"
        return f"{len(str(error).splitlines())} lines: {error}" if "\n" in str(error) else ""
    except TimeoutError:
        last = traceback.extract_tb(sys.exc_info()[2])[-2:]
        return f"more than {SECONDS} s in {[f'{f.filename}:{f.lineno}' for f in last]}"
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        return f"{type(error).__name__}: {str(error)[:150]} ({last.filename}:{last.lineno})"
    return ""


def _late(*_: object) -> None:
    raise TimeoutError


def wrong(seeds: range) -> Iterator[str]:
    """A line for each model that is not taken as it should be. Bounds this process."""
    resource.setrlimit(resource.RLIMIT_AS, (BYTES, BYTES))
    signal.signal(signal.SIGALRM, _late)
    for seed in seeds:
        model = damaged(seed)
        signal.alarm(SECONDS)
        found = check(model)
        signal.alarm(0)
        if found:
            yield f"seed {seed}, {[n.op_type for n in model.graph.node]}: {found}"


def main() -> None:
    first, last = map(int, sys.argv[1:3])
    for line in wrong(range(first, last)):
        print(line, flush=True)


if __name__ == "__main__":
    main()
