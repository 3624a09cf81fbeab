"""Stages as they are run. In: a part of a model, and the values that it is given. Out: the values
that it gives.

Ours is compiled for the shapes that it is given when it first meets them, and, where values decide
shapes, for these values too. A value is an array, a list of arrays (a sequence), or None (an
optional value that is not there).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from autotune.compiler.sized import OpenProgram
from autotune.defects import NO_DEFECT
from autotune.errors import ControlFlowError, LengthError, ModelError, UnsupportedOpError
from autotune.fallback import foreign
from autotune.fallback.opened import OpenedPart, Shapes
from autotune.fallback.stages import Kind, Stage, node_id
from autotune.frontend.onnx.importer import import_part
from autotune.graph.ir import Graph
from autotune.runtime.model import CompiledModel
from autotune.types import Array

KEPT = 64
"""Models of one part, for other shapes and values, that are kept."""
BY_VALUES = ("ConstantOfShape", "Expand", "Range", "Tile")
"""Operators that cost no more by themselves, whose outputs are as long as values say."""
MOST_OPENED = 4
"""Sets of shapes that a program for all sizes is made of: each one more may make another one."""
MOST_VALUES = 1 << 12
"""Elements of an input whose values a model is compiled for; more are data."""

Values = Mapping[str, Any]
CompileGraph = Callable[[Graph], CompiledModel]
Tell = Callable[[str], None]


class RecutError(Exception):
    """A stage cannot be run as it was cut: the nodes that make `outputs` are a `kind` of stages of
    their own, or need `value` before, or are foreign."""

    def __init__(
        self,
        cause: UnsupportedOpError,
        outputs: Sequence[str],
        value: str = "",
        *,
        kind: Kind = "foreign",
    ) -> None:
        super().__init__(str(cause))
        self.cause, self.outputs, self.value = cause, tuple(outputs), value
        self.kind = kind


@dataclass(frozen=True, slots=True, kw_only=True)
class _Made:
    """A part for some shapes. Without a model, it gives nothing but empty sequences."""

    model: CompiledModel | None
    lengths: Mapping[str, int]
    """How many tensors each output that is a sequence has."""
    baked: frozenset[str]
    """Inputs that are constants in it."""
    simple: bool = False
    """Whether it takes what the part is given as it is."""


class OwnPart:
    """A stage of nodes that all have kernels."""

    own = True

    def __init__(
        self, stage: Stage, part: onnx.ModelProto, compiled: CompileGraph, opened: OpenProgram
    ) -> None:
        self._stage, self._part, self._compile = stage, part, compiled
        self._open, self._met = opened, dict[object, list[Shapes]]()
        self._opened: dict[object, OpenedPart | None] = {}
        """What runs arrays of given types at all lengths; None: nothing does."""
        constants = {t.name for t in part.graph.initializer}
        self._taken = tuple(name for name in stage.inputs if name not in constants)
        self._deciding: frozenset[str] = frozenset()
        """Inputs whose values decide shapes."""
        self._reasons: list[UnsupportedOpError] = []
        """What they decide."""
        self._shapes_met: set[object] = set()
        """Shapes for which there was a model, whatever the values were."""
        self._kept: OrderedDict[object, _Made] = OrderedDict()

    @property
    def deciding(self) -> frozenset[str]:
        """Inputs whose values the part is compiled for."""
        return self._deciding

    @property
    def compiled(self) -> int:
        """Models that were compiled for it and are kept."""
        return len(self._kept)

    def single(self, values: Values) -> CompiledModel | None:
        """The one native call that the part is where values have these shapes, whatever they are;
        None where it is not that. It is compiled already."""
        given = {name: values[name] for name in self._taken}
        made = self._kept.get(self._shapes_of(given))
        simple = made is not None and not (made.lengths or made.baked)
        return made.model if made is not None and simple else None

    def run(self, values: Values) -> dict[str, Any]:
        """Outputs by name, of a model that is compiled for these shapes where there is none yet.
        Raises RecutError, and ModelError where the shapes do not fit."""
        given = {name: values[name] for name in self._taken}
        made = self._made(given)
        if made.model is None:
            found: dict[str, Any] = {}
        else:
            found = made.model.run(given if made.simple else _flat(given, made.baked))
        for name, length in made.lengths.items():
            found[name] = [found.pop(f"{name}[{i}]") for i in range(length)]
        return found

    def close(self) -> None:
        """Give the memory of all its models back."""
        for made in self._kept.values():
            if made.model is not None:
                made.model.close()
        self._kept.clear()

    def _made(self, given: Values) -> _Made:
        while True:
            key = self._shapes_of(given)
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
            try:
                self._look_at_changed(given)
                made = self._at_any_size(given) or self._imported(given)
            except UnsupportedOpError as error:
                self._decide(error, given)
                continue
            self._kept[key] = made
            self._shapes_met.add(self._shapes_of(given, values=False))
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)
            return made

    def _shapes_of(self, given: Values, *, values: bool = True) -> object:
        """Key of the model for these inputs: their shapes, and what deciding ones are."""
        return tuple(_key(v, values and name in self._deciding) for name, v in given.items())

    def _look_at_changed(self, given: Values) -> None:
        """Where values that decide shapes have changed, they will again: raise a RecutError for
        what they decide to be worked out in a stage before, and for nodes whose outputs are as
        long as they say to be run by themselves, so that no model is for single values."""
        if not self._reasons or self._shapes_of(given, values=False) not in self._shapes_met:
            return
        for error in self._reasons:
            if error.value not in given:
                raise RecutError(error, [error.output], error.value) from error
            decided = (n for n in self._stage.nodes if node_id(n) == error.output)
            if any(node.op_type in BY_VALUES for node in decided):
                raise RecutError(error, [error.output], kind="counted") from error

    def _decide(self, error: UnsupportedOpError, given: Values) -> None:
        """Make the values that shapes depend on part of what is compiled for; or raise
        RecutError."""
        branch = any(node_id(n) == error.output and n.op_type == "If" for n in self._stage.nodes)
        if isinstance(error, ControlFlowError) or branch:
            raise RecutError(error, [error.output], kind="control") from error
        if isinstance(error, LengthError):
            raise RecutError(error, [error.output], kind="counted") from error
        asked = {_base(name) for name in error.inputs}
        small = asked and all(
            isinstance(given[n], np.ndarray | np.generic) and given[n].size <= MOST_VALUES
            for n in asked
        )
        if error.output and small and not asked <= self._deciding:
            self._deciding |= asked
            self._reasons.append(error)
            return
        if error.output and error.inputs and error.value not in given:
            raise RecutError(error, [error.output], error.value) from error
        if error.output:
            raise RecutError(error, [error.output]) from error
        readers = [node_id(n) for n in self._stage.nodes if _base(error.value) in n.input]
        if not readers:
            raise error
        raise RecutError(error, readers) from error

    def _at_any_size(self, given: Values) -> _Made | None:
        """A part that meets a second set of shapes is compiled for all of them, where that can be:
        None where not, and for the first. Shapes that show that what were alike are not lead to
        another program. Raises ControlFlowError of a loop that sizes end."""
        arrays = {n: v for n, v in given.items() if isinstance(v, np.ndarray) and v.size}
        baked = {name: value for name, value in arrays.items() if name in self._deciding}
        if len(arrays) < len(given):
            return None
        fed = {name: array for name, array in arrays.items() if name not in baked}
        kinds = (
            tuple((array.dtype.name, array.ndim) for array in fed.values()),
            tuple(_key(value, True) for value in baked.values()),
        )
        shapes = {name: array.shape for name, array in fed.items()}
        met = self._met.setdefault(kinds, [])
        found = self._opened.get(kinds)
        another = found is None or not found.fits(shapes)
        if another and shapes not in met and len(met) < MOST_OPENED:
            met.append(shapes)
            if len(met) > 1:
                found = self._opened[kinds] = self._program(fed, baked, met)
        model = found.at(shapes) if found is not None else None
        if model is None:
            return None
        return _Made(model=model, lengths={}, baked=frozenset(baked), simple=not baked)

    def _program(
        self, fed: Mapping[str, Array], baked: Mapping[str, Array], met: Sequence[Shapes]
    ) -> OpenedPart | None:
        """One for all sizes that these shapes are of; None where there is none. `baked`: inputs
        that are constants in it."""
        part = onnx.ModelProto()
        part.CopyFrom(self._part)
        part.graph.initializer.extend(numpy_helper.from_array(v, n) for n, v in baked.items())
        part.graph.input.extend(_info(n, a, fixed=False) for n, a in fed.items())
        dtypes = {name: array.dtype.name for name, array in fed.items()}
        try:
            return OpenedPart(part, dtypes, met, self._open)
        except ControlFlowError:
            raise
        except ModelError:
            return None
        except NO_DEFECT:
            raise
        except Exception:  # each set of shapes can be compiled for itself
            return None

    def _imported(self, given: Values) -> _Made:
        """Compiled for these shapes and values."""
        part, baked = onnx.ModelProto(), set()
        part.CopyFrom(self._part)
        made_first = []
        for name, value in given.items():
            if value is None:
                for node in part.graph.node:
                    node.input[:] = ["" if i == name else i for i in node.input]
            elif isinstance(value, list):
                items = [f"{name}[{i}]" for i in range(len(value))]
                part.graph.input.extend(_info(n, v) for n, v in zip(items, value, strict=True))
                made_first.append(helper.make_node("SequenceConstruct", items, [name]))
            elif name in self._deciding or np.size(value) == 0:
                part.graph.initializer.append(numpy_helper.from_array(np.asarray(value), name))
                baked.add(name)
            else:
                part.graph.input.append(_info(name, value))
        for number, node in enumerate(made_first):
            part.graph.node.insert(number, node)
        graph, lengths = import_part(part)
        model = self._compile(graph) if graph.outputs else None
        arrays = all(isinstance(value, np.ndarray) for value in given.values())
        simple = arrays and not baked
        return _Made(model=model, lengths=lengths, baked=frozenset(baked), simple=simple)


class ForeignPart:
    """A stage of nodes without kernels."""

    own = False
    compiled = 0
    deciding: frozenset[str] = frozenset()

    def __init__(self, stage: Stage, part: onnx.ModelProto, tell: Tell) -> None:
        self._stage, self._part, self._tell = stage, part, tell
        self._constants = {t.name for t in part.graph.initializer}
        self._calls: dict[object, foreign.Call] = {}

    def run(self, values: Values) -> dict[str, Any]:
        """Outputs by name, of the evaluator that knows the nodes. Raises UnsupportedOpError where
        none does."""
        given = {n: values[n] for n in self._stage.inputs if n not in self._constants}
        feeds = {name: value for name, value in given.items() if value is not None}
        kinds = tuple((name, _kind(value)) for name, value in feeds.items())
        if kinds not in self._calls:
            who, self._calls[kinds] = foreign.evaluator(self._declared(feeds, given), feeds)
            if who != foreign.evaluator_name(self._stage.nodes):
                self._tell(told(self._stage, who))
        return dict(zip(self._stage.outputs, self._calls[kinds](feeds), strict=True))

    def close(self) -> None:
        """Nothing of it is ours."""
        self._calls.clear()

    def _declared(self, feeds: Values, given: Values) -> onnx.ModelProto:
        part = onnx.ModelProto()
        part.CopyFrom(self._part)
        for name, value in feeds.items():
            part.graph.input.append(_info(name, value, fixed=False))
        for name in given.keys() - feeds.keys():
            for node in part.graph.node:
                node.input[:] = ["" if i == name else i for i in node.input]
        return part


def told(stage: Stage, who: str) -> str:
    """One line: what of a stage runs elsewhere, and where."""
    parts = [
        f"{count} node{'s' * (count > 1)} of {name!r}" for name, count in stage.operators.items()
    ]
    verb = "runs" if sum(stage.operators.values()) == 1 else "run"
    return f"{', '.join(parts)} {verb} in {who}"


def _flat(given: Values, baked: frozenset[str]) -> dict[str, Any]:
    """Feeds of a compiled part: sequences as their elements."""
    out: dict[str, Any] = {}
    for name, value in given.items():
        if isinstance(value, list):
            out |= {f"{name}[{i}]": np.asarray(item) for i, item in enumerate(value)}
        elif value is not None and name not in baked:
            out[name] = np.asarray(value)
    return out


def _base(name: str) -> str:
    """The input that an element of a sequence belongs to."""
    return name.partition("[")[0]


def _key(value: Any, deciding: bool) -> object:
    if value is None:
        return None
    if isinstance(value, list):
        return tuple(_key(item, False) for item in value)
    array = value if isinstance(value, np.ndarray) else np.asarray(value)
    return array.dtype, array.shape, array.tobytes() if deciding else b""


def _kind(value: Any) -> object:
    if isinstance(value, list):
        return ("list", *{np.asarray(item).dtype.name for item in value})
    array = np.asarray(value)
    return array.dtype.name, array.ndim


def _info(name: str, value: Any, *, fixed: bool = True) -> onnx.ValueInfoProto:
    """A value as an input of a model; of its shape only the rank where that is not `fixed`."""
    if isinstance(value, list):
        first = np.asarray(value[0] if value else np.float32(0))
        inner = helper.make_tensor_type_proto(_element(first), None)
        return helper.make_value_info(name, helper.make_sequence_type_proto(inner))
    array = np.asarray(value)
    shape = list(array.shape) if fixed else [None] * array.ndim
    return helper.make_tensor_value_info(name, _element(array), shape)


def _element(array: np.ndarray[Any, Any]) -> int:
    if array.dtype.kind in "OUS":
        return int(onnx.TensorProto.STRING)
    try:
        return int(helper.np_dtype_to_tensor_dtype(array.dtype))
    except (KeyError, ValueError, TypeError):
        raise ModelError(f"arrays of {array.dtype} are in no ONNX model") from None
