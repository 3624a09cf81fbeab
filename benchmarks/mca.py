"""Inner loops of default schedules by llvm-mca: multiply-adds a cycle, without the machine.

    python benchmarks/mca.py resnet50.onnx minilm.onnx [--target cortex-a72] [--kernels]
        [--precision bf16] [--transforms]

In: models and names of targets. Out: a row per model and target: multiply-adds a cycle in the
loops that sum products into registers, weighted by how often these run; what llvm-mca allows of
them alone, and with all that a loop's instructions need of ports and dispatch; the slowest kernel
that has 1 % of the multiply-adds; loads and stores to the stack in these loops. `--kernels` adds a
row per kernel; `--transforms` prints Winograd's transforms instead: instructions and cycles of
their loops, each loop once, and loads and stores of the stack. Of a target with matrix tiles
(AMX), a row of those kernels that multiply tiles (benchmarks/machines/mca_tiles.py).

llvm-mca predicts a loop whose data are in the first cache. Debian has it in `llvm`, and newer ones
in `llvm-22` and the like: the newest that is installed is used, since the models of cores differ.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import cost_model
from autotune.codegen.llvm.backend import LlvmBackend, assembly_text
from autotune.compiler.layout_costs import arranged
from autotune.compiler.prepare import prepare
from autotune.errors import AutotuneError
from autotune.frontend import load_model
from autotune.machine import Machine
from autotune.program.affine import Index
from autotune.program.ir import (
    Alloc,
    Apply,
    Bound,
    Const,
    For,
    If,
    Program,
    Stmt,
    Store,
    Table,
    walk,
)
from autotune.schedule import apply_schedule
from autotune.target import Target, load_target
from autotune.tasks.build import build_program
from autotune.types import Task
from benchmarks.machines.mca_code import CodeBlock, alone, code_blocks, matched, predicted
from benchmarks.machines.mca_tiles import TileScore, tile_score
from search_spaces.base import rule_for

TARGETS = ("cortex-a72", "neoverse-n1", "neoverse-v1", "apple-m1")
RULES = ("contraction", "attention")
"""Rules of kernels that are nothing but products of matrices, and what is fused with them."""
LEAST_ADDITIONS = 8
"""Vectors of a transform's loop that are added, at least."""
SLOW_SHARE = 0.01
"""Of a model's multiply-adds: kernels with fewer are not named as its slowest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProductLoop:
    """Straight code of a program that sums products into registers: an innermost loop's, or that
    of a short sum which is all written out."""

    iterations: int
    """How often it runs."""
    multiply_adds: int
    """Vectors of them each time, as many lanes as the target's at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """Cycles of loops as they are, by their multiply-adds alone, and by all ports and dispatch."""

    work: float
    """Vectors of multiply-adds."""
    cycles: float
    least: float
    bound: float
    spills: int

    @staticmethod
    def total(scores: Sequence[Score]) -> Score:
        work, cycles, least, bound, spills = (
            sum(getattr(s, name) for s in scores)
            for name in ("work", "cycles", "least", "bound", "spills")
        )
        return Score(work=work, cycles=cycles, least=least, bound=bound, spills=int(spills))

    def times(self, count: int) -> Score:
        """Of a kernel that is called so often; its code is there once."""
        return Score(
            work=self.work * count, cycles=self.cycles * count, least=self.least * count,
            bound=self.bound * count, spills=self.spills,
        )  # fmt: skip

    @property
    def share(self) -> float:
        """Of the multiply-adds that llvm-mca allows."""
        return self.least / self.cycles

    def __str__(self) -> str:
        rates = [self.work / c for c in (self.cycles, self.least, self.bound)]
        return (
            f"{rates[0]:.2f} | {rates[1]:.2f} | {rates[2]:.2f} | {100 * self.share:.0f} % "
            f"| {self.spills}"
        )


# ------------------------------------------------------------------------------------- programs


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where in a program a statement is, of loops around it and conditions that hold."""

    around: Mapping[str, int]
    """Loops that are not written out, with their extents."""
    known: Mapping[str, Index]
    """Iterations of those that are."""
    guards: tuple[Bound, ...] = ()

    def inside(self, loop: For) -> Place:
        return dataclasses.replace(self, around={**self.around, loop.var: loop.extent})

    def at(self, var: str, iteration: int) -> Place:
        return dataclasses.replace(self, known={**self.known, var: Index(const=iteration)})

    def under(self, bounds: Sequence[Bound]) -> Place:
        return dataclasses.replace(self, guards=(*self.guards, *_at(bounds, self.known)))

    def runs(self) -> int:
        """How often what is here runs."""
        read = [n for n in self.around if any(n in g.index.vars() for g in self.guards)]
        iterations = itertools.product(*(range(self.around[n]) for n in read))
        held = sum(_hold(self.guards, dict(zip(read, i, strict=True))) for i in iterations)
        return held * math.prod(e for n, e in self.around.items() if n not in read)


def product_loops(program: Program, lanes: int) -> list[ProductLoop]:
    """Straight code that sums products into registers, in the order in which it is written."""
    return list(_loops(program.body, lanes, Place(around={}, known={})))


def _loops(body: Sequence[Stmt], lanes: int, place: Place) -> Iterator[ProductLoop]:
    if not any(_is_branch(s, place.around) for s in walk(tuple(body))):
        count = _multiply_adds(body, lanes, place)
        if count:
            yield ProductLoop(iterations=place.runs(), multiply_adds=count)
        return
    for stmt in body:
        if isinstance(stmt, If):
            yield from _loops(stmt.body, lanes, place.under(stmt.bounds))
        elif isinstance(stmt, Alloc):
            yield from _loops(stmt.body, lanes, place)
        elif isinstance(stmt, For) and stmt.kind == "unroll":
            for i in range(stmt.extent):
                yield from _loops(stmt.body, lanes, place.at(stmt.var, i))
        elif isinstance(stmt, For):
            yield from _loops(stmt.body, lanes, place.inside(stmt))


def _is_branch(stmt: Stmt, around: Mapping[str, int]) -> bool:
    """Whether it is a loop that is not written out, or depends on one."""
    if isinstance(stmt, If):
        return any(not around.keys().isdisjoint(b.index.vars()) for b in stmt.bounds)
    return isinstance(stmt, For) and stmt.kind in ("serial", "parallel") and stmt.extent > 1


def _at(bounds: Sequence[Bound], known: Mapping[str, Index]) -> tuple[Bound, ...]:
    return tuple(Bound(b.index.substitute(known), b.lo, b.hi) for b in bounds)


def _hold(guards: Sequence[Bound], place: Mapping[str, int]) -> bool:
    at = {name: Index(const=i) for name, i in place.items()}
    return all(g.lo <= g.index.substitute(at).const < g.hi for g in guards)


def _multiply_adds(body: Sequence[Stmt], lanes: int, place: Place) -> int:
    """Vectors of products that are summed, of `lanes` at most."""
    total = 0
    for stmt in body:
        if isinstance(stmt, Store):
            total += _is_product(stmt)
        elif isinstance(stmt, Alloc):
            total += _multiply_adds(stmt.body, lanes, place)
        elif isinstance(stmt, If):
            bounds = [b for b in _at(stmt.bounds, place.known) if b.index.is_const]
            total += _multiply_adds(stmt.body, lanes, place) if _hold(bounds, {}) else 0
        elif isinstance(stmt, For):
            step = {"vector": lanes, "unroll": 1}.get(stmt.kind, stmt.extent)
            for i in range(0, stmt.extent, step):
                total += _multiply_adds(stmt.body, lanes, place.at(stmt.var, i))
    return total


def _is_product(store: Store) -> bool:
    """Of two numbers from memory: transforms multiply by what a table says."""
    value = store.value
    if store.combine != "sum" or not isinstance(value, Apply) or value.fn != "mul":
        return False
    return not any(isinstance(factor, Table | Const) for factor in value.args)


# --------------------------------------------------------------------------------------- scores


def score(task: Task, target: Target) -> Score | TileScore | None:
    """A kernel's inner loops, by its default schedule; None where it is no product of matrices."""
    if rule_for(task, target).name not in RULES:
        return None
    program, code = kernel_code(task, target)
    if any(block.tile_products for block in code):
        return tile_score(task, code)
    loops, rows = product_loops(program, target.lanes()), []
    for loop, block in zip(loops, matched(loops, code), strict=True):
        cycles, bound = predicted(block.lines, target)
        n = loop.iterations
        rows.append(Score(
            work=n * loop.multiply_adds, cycles=n * cycles, least=n * alone(block, target),
            bound=n * bound, spills=block.spills,
        ))  # fmt: skip
    return Score.total(rows)


def rows_of(model: str, target: Target, *, kernels: bool) -> Iterator[str]:
    """The model's row of the table, after those of its kernels if these are wanted, and one of
    kernels that multiply tiles where there are some."""
    prepared = prepare(load_model(model), target.precision, None, short=target.short_tensors)
    found, tiles = list[Score](), list[TileScore]()
    for task, count in arranged(prepared.graph, target).weights().items():
        one = score(task, target)
        if isinstance(one, Score):
            found.append(one.times(count))
        elif one is not None:
            tiles.append(one.times(count))
        if one is not None and kernels:
            shapes = " ".join("x".join(map(str, v.type.shape)) for v in task.values[:2])
            yield f"{task.nodes[task.anchor].op} {shapes} | {target.name} | {one} |"
    named = f"| {Path(model).stem} | {target.name}"
    if found:
        total = Score.total(found)
        heavy = [s.share for s in found if s.work > SLOW_SHARE * total.work]
        yield f"{named} | {total} | {100 * min(heavy):.0f} % |"
    if tiles:
        both = TileScore.total(tiles)
        heavy = [s.share for s in tiles if s.work > SLOW_SHARE * both.work]
        yield f"{named}, tiles | {both} | {100 * min(heavy):.0f} % |"


def transform_rows(model: str, target: Target) -> Iterator[str]:
    """Rows of kernels with transforms: their loops that add many vectors, as products do not."""
    prepared = prepare(load_model(model), target.precision, None, short=target.short_tensors)
    for task in arranged(prepared.graph, target).weights():
        config = cost_model.default(task, Machine.of(target), rule_for(task, target))
        algorithm = str(dict(config.items).get("algorithm", ""))
        if not algorithm.startswith("winograd"):
            continue
        loops = [b for b in kernel_code(task, target)[1] if b.additions >= LEAST_ADDITIONS]
        both = [predicted(b.lines, target) for b in loops]
        cycles, bound = (sum(part) for part in zip(*both, strict=True))
        shapes = " ".join("x".join(map(str, v.type.shape)) for v in task.values[:2])
        size, spills = (
            sum(n) for n in zip(*((len(b.lines), b.spills) for b in loops), strict=True)
        )
        yield (
            f"| {shapes} {algorithm} | {target.name} | {size} | {cycles:.0f} | {bound:.0f} "
            f"| {spills} |"
        )


def kernel_code(task: Task, target: Target) -> tuple[Program, list[CodeBlock]]:
    """A task's program by its default schedule, and its code."""
    rule = rule_for(task, target)
    config = cost_model.default(task, Machine.of(target), rule)
    program = apply_schedule(build_program(task), rule.schedule(task, target, config))
    text = LlvmBackend().source(program, target, "kernel")
    return program, code_blocks(assembly_text(text, target))


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("models", nargs="+")
    parser.add_argument("--target", action="append", help=f"default: {', '.join(TARGETS)}")
    parser.add_argument("--precision", default="float32")
    parser.add_argument("--kernels", action="store_true", help="a row per kernel, too")
    parser.add_argument("--transforms", action="store_true", help="Winograd's, instead")
    args = parser.parse_args()
    heads = ["kernel", "core", "instructions", "cycles", "bound", "spills"]
    if not args.transforms:
        heads = ["model", "core", "a cycle", "alone", "bound", "share", "spills", "slowest"]
    print(f"| {' | '.join(heads)} |")
    print(f"| {' | '.join('---' for _ in heads)} |")
    try:
        for model in args.models:
            for name in args.target or TARGETS:
                target = load_target(name).with_precision(args.precision)
                rows = rows_of(model, target, kernels=args.kernels)
                for row in transform_rows(model, target) if args.transforms else rows:
                    print(row, flush=True)
    except (AutotuneError, FileNotFoundError, ValueError) as error:
        sys.exit(f"error: {error}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
