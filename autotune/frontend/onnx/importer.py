"""Import an ONNX model. In: a file, its bytes or a ModelProto; shapes for symbolic inputs. Out: a
`Graph`.

The importers of single operators are in the files beside this one, a family each.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import onnx
import onnx.version_converter
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from autotune.errors import ModelError, UnsupportedOpError
from autotune.frontend.assembly import Assembler
from autotune.frontend.onnx.context import (
    IMPORTERS,
    NodeContext,
    dense_array,
    dtype_name,
    tensor_array,
    tensor_type,
)
from autotune.frontend.onnx.control import CONTROLS
from autotune.frontend.onnx.expected import MISFITS, check_node, misfit
from autotune.frontend.onnx.external import check_whole
from autotune.frontend.onnx.functions import without_functions
from autotune.frontend.onnx.inputs import Shapes, resolve_shapes
from autotune.frontend.onnx.kinds import DECLARED, declared_type, result_kinds
from autotune.frontend.onnx.mapped import read_mapped
from autotune.frontend.onnx.sequence import READERS
from autotune.frontend.onnx.values import check_values, describe
from autotune.graph.build import GraphBuilder
from autotune.graph.ir import Graph
from autotune.registry import load_folder

OPSETS = range(7, 29)
MOVERS = frozenset(("Flatten", "MaxPool", "Reshape", "Squeeze", "Transpose", "Unsqueeze"))
"""Operators whose results are elements of their first input, whatever these are."""
DRAWN = (
    "it draws numbers, and the same inputs give the same outputs here; make what is drawn an "
    "input of the model"
)
REASONS = {
    "Bernoulli": DRAWN, "Multinomial": DRAWN, "RandomNormal": DRAWN, "RandomNormalLike": DRAWN,
    "RandomUniform": DRAWN, "RandomUniformLike": DRAWN,
    "MaxRoiPool": "its windows are known to a run only; export the model with RoiAlign",
}  # fmt: skip
"""Operators that are refused: why, and what to do."""

load_folder("autotune.frontend.onnx", [str(Path(__file__).parent)])


def import_onnx(
    source: str | os.PathLike[str] | bytes | onnx.ModelProto, shapes: Shapes | None = None
) -> Graph:
    """The model as a graph with static shapes and NHWC image operators.

    `source`: a file, its bytes, or what the onnx package made of it. `shapes` fixes the symbolic
    dimensions of inputs, by input name. Raises ModelError where the file is missing, damaged or
    not static, UnsupportedOpError where an operator is not known."""
    return import_model(read_onnx(source), shapes or {})


def read_onnx(
    source: str | os.PathLike[str] | bytes | onnx.ModelProto, *, mapped: bool = False
) -> onnx.ModelProto:
    """The model with all its tensors; `mapped`: the large ones of a file stay there, and are
    mapped into memory where they are used. Raises ModelError where it is missing or damaged."""
    model, what = _read(source, mapped)
    if not model.graph.output or not model.opset_import:
        raise ModelError(
            f"{what} is not an ONNX file, or it is truncated: it has no graph with outputs and "
            "no opset; write it again"
        )
    return _of_known_opset(model)


def check_operators(model: onnx.ModelProto) -> None:
    """Raise UnsupportedOpError where a node is of an operator without an importer, which can be
    said before any size is known."""
    opset = _opset(model)
    for node in without_functions(model).graph.node:
        operator = operator_name(node)
        with _naming(output=next(filter(None, node.output), "")):
            if operator not in CONTROLS and operator not in IMPORTERS:
                raise UnsupportedOpError(_refusal(node, describe(node, opset)))


def operator_name(node: onnx.NodeProto) -> str:
    """As importers are registered: with the domain, if it is not ONNX's own."""
    plain = node.domain in ("", "ai.onnx")
    return node.op_type if plain else f"{node.domain}.{node.op_type}"


def model_inputs(graph: onnx.GraphProto) -> list[onnx.ValueInfoProto]:
    """What a run is given. Files of IR version 3 list initializers among the inputs."""
    initialized = {t.name for t in graph.initializer}
    return [i for i in graph.input if i.name not in initialized]


def import_model(model: onnx.ModelProto, shapes: Shapes, *, whole: bool = True) -> Graph:
    """As `import_onnx`, from a model in memory that has all its tensors. What is not `whole`
    refuses control flow that a run had better do by itself: raises ControlFlowError."""
    made = _ModelImport(without_functions(model), shapes)
    made.whole = whole
    return made.run()


def import_part(
    model: onnx.ModelProto, shapes: Shapes | None = None
) -> tuple[Graph, dict[str, int]]:
    """A part of a model, without functions, whose outputs may be sequences: (the graph, lengths of
    these by their names). Their elements are outputs `NAME[0]`, `NAME[1]` and so on."""
    part = _ModelImport(model, shapes or {}, sequences=True)
    part.whole = False
    graph = part.run()
    return graph, part.lengths


def _read(
    source: str | os.PathLike[str] | bytes | onnx.ModelProto, mapped: bool
) -> tuple[onnx.ModelProto, str]:
    """The model with all its tensors, and what messages call it."""
    if isinstance(source, str | os.PathLike):
        what = f"model {str(source)!r}"
        return _parsed(source, what, mapped), what
    if isinstance(source, onnx.ModelProto):
        model, what = source, "the model given as a ModelProto"
    else:
        what = "the model given as bytes"
        model = _parsed(bytes(source), what)
    check_whole(model, what)
    return model, what


def _parsed(
    source: str | os.PathLike[str] | bytes, what: str, mapped: bool = False
) -> onnx.ModelProto:
    """Raises ModelError."""
    try:
        if isinstance(source, bytes):
            return onnx.load_model_from_string(source)
        return (read_mapped if mapped else onnx.load)(os.fspath(source))
    except FileNotFoundError as error:
        missing = error.filename or error
        raise ModelError(f"{what}: there is no file {str(missing)!r}; check the path") from error
    except OSError as error:
        raise ModelError(
            f"{what} cannot be read: {error.strerror or error}; expected a file"
        ) from error
    except ModelError as error:
        raise ModelError(f"{what}: {error}") from error
    except onnx.checker.ValidationError as error:
        raise ModelError(f"{what}: its external data cannot be read: {error}") from error
    except (DecodeError, ValueError) as error:
        raise ModelError(
            f"{what} is not an ONNX file, or it is truncated ({error}); write it again"
        ) from error


class _ModelImport:
    """The import of one model: walks its nodes in order, keeping ONNX value -> graph value."""

    def __init__(self, model: onnx.ModelProto, shapes: Shapes, *, sequences: bool = False) -> None:
        self.graph = model.graph
        self.opset = _opset(model)
        self.shapes = shapes
        self.builder = GraphBuilder(model.graph.name or "model")
        self.inputs: set[str] = set()
        self.imported = 0
        self.values: dict[str, str] = {}
        self.kinds: dict[str, int] = {}
        """ONNX values whose type graphs do not have -> the type."""
        self.declared: dict[str, str] = {}
        """Inputs and outputs that are of a narrow type outside -> numpy's name of that."""
        self.absent: dict[str, str] = {}
        """ONNX values that an importer does not make -> why."""
        self.sequences = sequences
        """Whether outputs may be sequences."""
        self.lengths: dict[str, int] = {}
        self.whole = True

    def run(self) -> Graph:
        check_values(self.graph, self.opset)
        self._add_inputs()
        self.values.update(self.initializers(self.graph))
        for node in self.graph.node:
            with _naming(output=next(filter(None, node.output), "")):
                self._add_node(node)
        outputs = []
        for info in self.graph.output:
            with _naming(output=info.name):
                self._check_made(info.name, f"output {info.name!r} of the model")
                parts = self.builder.sequences.get(self.values[info.name])
                if parts is not None and self.sequences:
                    self.lengths[info.name] = len(parts)
                    outputs += [(f"{info.name}[{i}]", self._own(p)) for i, p in enumerate(parts)]
                    continue
                self._check_tensor(info.name, f"output {info.name!r} of the model")
                outputs.append((info.name, self._own(self.values[info.name])))
                made = self.builder.dtype(self.values[info.name])
                if declared := declared_type(info, self.kinds, made):
                    self.declared[info.name] = declared
        return self.builder.finish(outputs, self.declared)

    def _add_inputs(self) -> None:
        infos = model_inputs(self.graph)
        for info, shape in zip(infos, resolve_shapes(infos, self.shapes), strict=True):
            kind = info.type.tensor_type.elem_type
            with _naming(value=info.name):
                dtype = dtype_name(kind, f"input {info.name!r}")
            if kind in DECLARED:
                self.kinds[info.name], self.declared[info.name] = kind, DECLARED[kind]
            self.values[info.name] = self.builder.input(info.name, tensor_type(dtype, shape))
            self.inputs.add(info.name)

    def initializers(self, graph: onnx.GraphProto) -> dict[str, str]:
        made = {}
        for sparse in graph.sparse_initializer:
            name = sparse.values.name
            array = dense_array(sparse, f"initializer {name!r}")
            made[name] = self.builder.constant(array, name)
        for tensor in graph.initializer:
            what = f"initializer {tensor.name!r}"
            made[tensor.name] = self.builder.constant(tensor_array(tensor, what), tensor.name)
            if tensor.data_type in DECLARED:
                self.kinds[tensor.name] = tensor.data_type
        return made

    def _add_node(self, node: onnx.NodeProto) -> None:
        self.imported += 1
        where = describe(node, self.opset)
        for value in filter(None, node.input):
            self._check_made(value, where)
            self._check_tensor(value, where, node.op_type)
        operator = operator_name(node)
        if operator in CONTROLS:
            self._add_control(node, where)
            return
        if operator not in IMPORTERS:
            raise UnsupportedOpError(_refusal(node, where))
        self.builder.label = node.name or next((o for o in node.output if o), "")
        context = NodeContext(node, self.opset, self.builder, self.values, self.kinds)
        try:
            check_node(node, context)
            made = IMPORTERS.get(operator)(context)
            context.check_attributes()
        except ModelError as error:
            raise _placed(error, where) from error
        except MISFITS as error:
            raise ModelError(f"{where}: {misfit(node, context, error)}") from error
        except MemoryError as error:
            raise ModelError(f"{where}: a constant is too large: {error}") from error
        made = (made,) if isinstance(made, str) else made
        if operator in MOVERS and (known := self.builder.numbers.get(context.input(0))):
            # Moved bytes stand for moved numbers.
            values = self.values | {node.input[0]: known[0]}
            again = NodeContext(node, self.opset, self.builder, values, self.kinds)
            moved = IMPORTERS.get(operator)(again)
            moved = moved if isinstance(moved, str) else moved[0]
            self.builder.numbers[made[0]] = (moved, *known[1:])
        self.kinds |= result_kinds(node, self.opset, self.kinds)
        for position, output in enumerate(node.output):
            if position < len(made):
                self.values[output] = made[position]
            else:
                self.absent[output] = f"output {position} of {where} is not supported"

    def _add_control(self, node: onnx.NodeProto, where: str) -> None:
        try:
            results = CONTROLS[node.op_type](self, node, where)
            self.values.update(zip(node.output, results, strict=True))
            for graph in (a.g for a in node.attribute if a.HasField("g")):
                pairs = zip(reversed(node.output), reversed(graph.output), strict=False)
                self._declare((name, info.type.tensor_type.elem_type) for name, info in pairs)
        except MISFITS as error:
            context = NodeContext(node, self.opset, self.builder, self.values, self.kinds)
            said = misfit(node, context, error)
            raise ModelError(f"{where}: its graphs do not fit it; {said}") from error
        except MemoryError as error:
            raise ModelError(f"{where}: a constant is too large: {error}") from error

    def inner(self, graph: onnx.GraphProto, known: Mapping[str, str], where: str) -> list[str]:
        """The values of a graph's outputs; its names are its own."""
        outer = self.values
        self.values = {**outer, **known}
        self._declare((i.name, i.type.tensor_type.elem_type) for i in graph.input)
        for node in graph.node:
            self._add_node(node)
        for output in graph.output:
            self._check_made(output.name, where)
        results = [self.values[o.name] for o in graph.output]
        self.values = outer
        return results

    def _declare(self, types: Iterable[tuple[str, int]]) -> None:
        self.kinds |= {name: kind for name, kind in types if kind in DECLARED}

    def _check_made(self, value: str, where: str) -> None:
        if value in self.absent and value not in self.values:
            raise UnsupportedOpError(
                f"{where} uses {value!r}: {self.absent[value]}; export the model for inference"
            )

    def _check_tensor(self, value: str, where: str, operator: str = "") -> None:
        sequence = self.values.get(value) in self.builder.sequences
        if sequence and operator not in READERS and operator not in CONTROLS:
            raise UnsupportedOpError(
                f"{where} uses {value!r}, a sequence of tensors; take tensors out of it, or join "
                "them, before"
            )

    def _own(self, value: str) -> str:
        """An output must be made by a node: inputs and constants are copied, and a run fills in
        sizes."""
        value = Assembler(self.builder).filled(value)
        given = value in self.builder.constants or value in self.inputs
        return self.builder.op("copy", value) if given else value


@contextlib.contextmanager
def _naming(output: str = "", value: str = "") -> Iterator[None]:
    """Errors say what they are about, by a name in the model."""
    try:
        yield
    except UnsupportedOpError as error:
        error.output, error.value = output, error.value or value
        raise


def _placed(error: ModelError, where: str) -> ModelError:
    """The same with the node that it is about."""
    placed = type(error)(f"{where}: {error}")
    if isinstance(error, UnsupportedOpError) and isinstance(placed, UnsupportedOpError):
        placed.value, placed.inputs = error.value, error.inputs
    return placed


def _refusal(node: onnx.NodeProto, where: str) -> str:
    domain = f" of domain {node.domain!r}" if node.domain else ""
    if node.op_type in REASONS:
        return f"{where}{domain} is not supported: {REASONS[node.op_type]}"
    return (
        f"{where}{domain} is not supported; replace it before the export, or add an importer in "
        "autotune/frontend"
    )


def _of_known_opset(model: onnx.ModelProto) -> onnx.ModelProto:
    """A model of an opset before ours as the standard's converter writes it."""
    versions = [o.version for o in model.opset_import if o.domain in ("", "ai.onnx")]
    if not versions or versions[0] >= OPSETS[0]:
        return model
    with contextlib.suppress(RuntimeError, ValueError):  # where it cannot: refused as what it is
        return onnx.version_converter.convert_version(model, OPSETS[0])
    return model


def _opset(model: onnx.ModelProto) -> int:
    versions = [o.version for o in model.opset_import if o.domain in ("", "ai.onnx")]
    if not versions:
        return OPSETS[-1]
    if versions[0] not in OPSETS:
        raise ModelError(
            f"the model uses opset {versions[0]}; supported are {OPSETS[0]} to {OPSETS[-1]}: "
            "convert it with onnx.version_converter or export it again"
        )
    return int(versions[0])
