"""A graph that runs in stages. In: a model in memory, and how a graph is compiled. Out: the values
of its outputs, and of whatever outlives its stage.

Stages are cut anew where a run finds that one of them cannot be run as it is.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import onnx
from onnx import numpy_helper

from autotune.compiler.sized import OpenProgram
from autotune.errors import UnsupportedOpError
from autotune.fallback import foreign
from autotune.fallback.control import BranchPart, LoopPart, ScanPart
from autotune.fallback.counted import CountedPart
from autotune.fallback.parts import CompileGraph, ForeignPart, OwnPart, RecutError, Tell, told
from autotune.fallback.stages import Cut, Stage, cut, node_id, part_of, tensors_of
from autotune.frontend.onnx.context import IMPORTERS
from autotune.frontend.onnx.control import CONTROLS
from autotune.frontend.onnx.importer import operator_name
from autotune.runtime.counting import Counting

MOST_CUTS = 1000
"""How often a model is cut again, at most: every node but once, and every value."""
Part = OwnPart | ForeignPart | BranchPart | LoopPart | ScanPart | CountedPart
_CONTROL_PARTS: dict[str, type[BranchPart] | type[LoopPart] | type[ScanPart]] = {
    "If": BranchPart,
    "Loop": LoopPart,
    "Scan": ScanPart,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class How:
    """Ways to compile and to fall back that all graphs of a model share."""

    compiled: CompileGraph
    opened: OpenProgram
    """Compiles a part for all sizes."""
    counting: Counting
    """Runs what gives as much as its values say."""
    tell: Tell
    """Takes a line for people."""
    fallback: bool = True
    """Whether others may run nodes."""


class StagedGraph:
    """A graph of a model, or of one of its nodes."""

    def __init__(self, model: onnx.ModelProto, how: How) -> None:
        self._tensors = tensors_of(model.graph)
        self._model, self._how = model, how
        wanted = {info.name for info in model.graph.output} & self._tensors.keys()
        self._given = {n: numpy_helper.to_array(self._tensors[n]) for n in sorted(wanted)}
        """Constants that are outputs."""
        foreign_nodes = without_importers(model.graph) if how.fallback else ()
        self._cut = Cut(foreign=frozenset(map(node_id, foreign_nodes)))
        self.parts: tuple[Part, ...] = ()
        self._stage_again()

    @property
    def own(self) -> bool:
        """Whether all of it runs in kernels of ours."""
        return not self._cut.foreign and all(part.own for part in self.parts)

    @property
    def deciding(self) -> frozenset[str]:
        """Values that parts were compiled for, since they decide shapes."""
        return frozenset(name for part in self.parts for name in part.deciding)

    @property
    def compiled(self) -> int:
        """Models that were compiled for it."""
        return sum(part.compiled for part in self.parts)

    def run(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        """Outputs by name. Raises what compiling does."""
        for _ in range(MOST_CUTS):
            try:
                return self._run_stages(feeds)
            except RecutError as error:
                self._cut_at(error)
        raise UnsupportedOpError(f"{self._model.graph.name!r} cannot be cut into stages")

    def close(self) -> None:
        """Give the memory back."""
        for part in self.parts:
            part.close()

    def _run_stages(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        values = {**feeds, **self._given}
        for part in self.parts:
            values |= part.run(values)
        return values

    def _cut_at(self, error: RecutError) -> None:
        """Cut where a stage could not be run. Raises its cause where that is no help."""
        before = self._cut
        if error.kind == "control":
            self._cut = dataclasses.replace(before, control=before.control | set(error.outputs))
        elif error.kind == "counted":
            self._cut = dataclasses.replace(before, counted=before.counted | set(error.outputs))
        elif error.value:
            known = before.known_first | {(name, error.value) for name in error.outputs}
            self._cut = dataclasses.replace(before, known_first=known)
        if self._cut == before:
            if not self._how.fallback:
                raise error.cause
            self._cut = dataclasses.replace(before, foreign=before.foreign | set(error.outputs))
        if self._cut == before:
            raise error.cause
        self._stage_again()

    def _stage_again(self) -> None:
        self.close()
        stages = cut(self._model.graph, self._cut)
        self.parts = tuple(map(self._part, stages))
        for stage in stages:
            if stage.kind == "foreign":
                self._how.tell(told(stage, foreign.evaluator_name(stage.nodes)))

    def _part(self, stage: Stage) -> Part:
        if stage.kind == "control":
            kind = _CONTROL_PARTS[stage.nodes[0].op_type]
            return kind(stage, self._model, self._inner, self._how.fallback)
        if stage.kind == "counted":
            return CountedPart(stage, self._tensors, self._how.counting)
        part = part_of(self._model, stage, self._tensors)
        if stage.kind == "foreign":
            return ForeignPart(stage, part, self._how.tell)
        return OwnPart(stage, part, self._how.compiled, self._how.opened)

    def _inner(self, model: onnx.ModelProto) -> StagedGraph:
        return StagedGraph(model, self._how)


def without_importers(graph: onnx.GraphProto) -> list[onnx.NodeProto]:
    """Nodes of operators that nothing here imports."""
    operators = ((node, operator_name(node)) for node in graph.node)
    return [node for node, name in operators if name not in IMPORTERS and name not in CONTROLS]
