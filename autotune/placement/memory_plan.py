"""Memory plan: every intermediate's place in one arena. In: a Partition. Out: a byte offset per
storage.

Pure arithmetic on lifetimes: a storage lives from the first kernel call that touches it to the
last. Two storages whose lives overlap never share a byte, with one exception: a call may write
over an input that dies at that call, where it reads each element only for the same element of its
output (an elementwise kernel's operand, the residual that a convolution adds). Storages with a
halo of zeros are zeroed once, at load, so they keep their memory for the whole run and share it
only with storages of the same layout; or they keep it from the first of these to the last, and are
zeroed in every run: then a run goes through less memory, most of it still in a cache.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from autotune.errors import VerifyError
from autotune.memory import ALIGNMENT
from autotune.ops.base import OPS
from autotune.placement.types import KernelCall, Partition, Placement, Storage
from autotune.types import ITEM_BYTES, Task

PROMOTIONS = 16
"""Orders of blocks that are tried after each greedy one: 6 led to the least of 11 models."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Storages that share one address, and the calls (both included) for which it is theirs."""

    storages: tuple[str, ...]
    nbytes: int
    first: int
    last: int

    def meets(self, other: Block) -> bool:
        return self.first <= other.last and other.first <= self.last


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPlan:
    """Byte offset of every arena storage; the arena's base is aligned to `ALIGNMENT`."""

    offsets: Mapping[str, int]
    arena_bytes: int
    in_place: tuple[tuple[str, str], ...]
    """(storage that dies, storage written over it)."""
    cleared: tuple[tuple[int, str], ...] = ()
    """(number of a call, storage whose halo must be zeroed before it): others used its memory."""
    least_bytes: int = 0
    """Bytes that are alive at once in the fullest call: no plan has less."""
    workspaces: Mapping[int, int] = field(default_factory=dict)
    """By number of a call, where in the arena its workspace is; none for the others."""


def plan_memory(
    partition: Partition,
    *,
    in_place: bool = True,
    lend: bool = False,
    workspaces: Mapping[int, int] | None = None,
) -> MemoryPlan:
    """Lay out the arena: the smallest of greedy plans. `lend`: whether others may use the
    memory of storages with a halo when these are not alive. `workspaces`: bytes that calls work in
    beside these, by their number. Raises VerifyError for an unused storage that a graph output
    needs, or a call on a value without a placement."""
    lives = lifetimes(partition)
    pairs = find_in_place(partition, lives) if in_place else ()
    blocks = _zeroed_together(_chains(partition, lives, pairs), partition, lend)
    names = {number: f"workspace of call {number}" for number in workspaces or ()}
    blocks += [
        Block(storages=(names[number],), nbytes=_aligned(nbytes), first=number, last=number)
        for number, nbytes in (workspaces or {}).items()
    ]
    arena_bytes, offsets = _smallest_plan(blocks)
    return MemoryPlan(
        workspaces={number: offsets[name] for number, name in names.items()},
        offsets=offsets,
        arena_bytes=arena_bytes,
        in_place=pairs,
        cleared=_cleared(blocks, partition, offsets),
        least_bytes=_least_bytes(blocks),
    )


def arena_order(partition: Partition) -> list[tuple[int, Block]]:
    """Where blocks begin in the smallest of greedy plans in which no call writes over its
    inputs; halos lend their memory."""
    blocks = _zeroed_together(_chains(partition, lifetimes(partition), ()), partition, lend=True)
    _, offsets = _smallest_plan(blocks)
    return [(offsets[block.storages[0]], block) for block in blocks]


def lifetimes(partition: Partition) -> dict[str, tuple[int, int]]:
    """Per arena storage the first and last call that touch it, of repeated calls the first and
    the last of all; a graph output lives to the end. A halo that repeated calls read lives through
    all of them: it is zeroed before, not in every trip."""
    out: dict[str, tuple[int, int]] = {}
    kept: set[str] = set()
    for number, call in enumerate(partition.calls):
        for _, placement in _placed_args(partition, call):
            first, _ = out.get(placement.storage, (number, number))
            out[placement.storage] = (first, number)
    for repeat in partition.repeats:
        for value in repeat.values:
            name = partition.placements[value].storage
            if partition.storages[name].kind == "arena":
                first, last = out.get(name, (repeat.first, repeat.last))
                out[name] = (min(first, repeat.first), max(last, repeat.last))
    for repeat in reversed(partition.repeats):
        for name, (first, last) in list(out.items()):
            inside = repeat.first <= first and last <= repeat.last
            if inside and partition.storages[name].zeroed and name not in kept:
                kept.add(name)
                out[name] = (repeat.first, repeat.last)
    for public, value in partition.graph.outputs:
        name = partition.placements[value].storage
        if partition.storages[name].kind == "arena":
            if name not in out:
                raise VerifyError(f"graph output {public} lies in {name}, which no call writes")
            out[name] = (out[name][0], len(partition.calls) - 1)
    return out


def storage_bytes(storage: Storage) -> int:
    """Size rounded up to the alignment."""
    return _aligned(storage.elements * ITEM_BYTES[storage.dtype])


def _aligned(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def _placed_args(partition: Partition, call: KernelCall) -> list[tuple[str, Placement]]:
    """(task value name, placement) of every input and output that lies in the arena."""
    out = []
    constants = {v.name for v in call.task.by_role("constant")}
    for name, value in call.args:
        if name in constants:
            continue
        if value not in partition.placements:
            raise VerifyError(f"call {call.name}: value {value} has no placement")
        placement = partition.placements[value]
        if partition.storages[placement.storage].kind == "arena":
            out.append((name, placement))
    return out


# --------------------------------------------------------------------------------------- in place


def find_in_place(
    partition: Partition, lives: Mapping[str, tuple[int, int]]
) -> tuple[tuple[str, str], ...]:
    """(dying input storage, output storage) pairs that may have the same address."""
    out: list[tuple[str, str]] = []
    for number, call in enumerate(partition.calls):
        placed = _placed_args(partition, call)
        results = {v.name for v in call.task.by_role("output")}
        target = next((p for name, p in placed if name in results), None)
        if target is None or lives[target.storage][0] != number:
            continue
        inputs = [(name, p) for name, p in placed if name not in results]
        for storage in dict.fromkeys(p.storage for _, p in inputs):
            uses = [(name, p) for name, p in inputs if p.storage == storage]
            dies = lives[storage][1] == number and storage != target.storage
            if dies and _overwritable(partition, call.task, uses, target):
                out.append((storage, target.storage))
                break
    return tuple(out)


def read_in_step(task: Task) -> frozenset[str]:
    """Inputs of which each element is read only for the same element of the output: elementwise
    nodes read them, and no other kind of node what is made of them."""
    spread: set[str] = set()
    for node in reversed(task.nodes):
        elementwise = node.op in OPS and OPS.get(node.op).kind == "elementwise"
        if not elementwise or spread.intersection(node.outputs):
            spread.update(node.inputs)
    return frozenset(v.name for v in task.by_role("input")) - spread


def _overwritable(
    partition: Partition, task: Task, uses: Sequence[tuple[str, Placement]], target: Placement
) -> bool:
    """Whether each input element of these uses lies exactly where its own result will."""
    result = task.by_role("output")[0].type
    old, new = partition.storages[uses[0][1].storage], partition.storages[target.storage]
    same_kind = (old.zeroed, old.sharing) == (new.zeroed, new.sharing)
    if not same_kind or (old.zeroed and not old.sharing):
        return False
    if ITEM_BYTES[old.dtype] != ITEM_BYTES[new.dtype]:
        return False
    return {name for name, _ in uses} <= read_in_step(task) and all(
        task.value(name).type.shape == result.shape
        and (place.offset, place.layout) == (target.offset, target.layout)
        for name, place in uses
    )


def _chains(
    partition: Partition,
    lives: Mapping[str, tuple[int, int]],
    pairs: Iterable[tuple[str, str]],
) -> list[Block]:
    """Storages joined by in-place pairs, one block per chain."""
    chain: dict[str, list[str]] = {name: [name] for name in lives}
    for old, new in pairs:
        chain[old].extend(chain[new])
        for name in chain[new]:
            chain[name] = chain[old]
    blocks = []
    for names in {id(c): c for c in chain.values()}.values():
        blocks.append(
            Block(
                storages=tuple(names),
                nbytes=max(storage_bytes(partition.storages[n]) for n in names),
                first=min(lives[n][0] for n in names),
                last=max(lives[n][1] for n in names),
            )
        )
    return blocks


# ------------------------------------------------------------------------------------ zeroed halos


def _zeroed_together(blocks: Sequence[Block], partition: Partition, lend: bool) -> list[Block]:
    """Zeroed blocks joined where sharing allows and kept, for the whole run or, to `lend`, from
    the first to the last; others unchanged."""
    whole_run = (0, max(len(partition.calls) - 1, 0))
    out = [b for b in blocks if not partition.storages[b.storages[0]].zeroed]
    classes: dict[str, list[list[Block]]] = {}
    for block in sorted(blocks, key=lambda b: (b.first, b.storages)):
        storage = partition.storages[block.storages[0]]
        if not storage.zeroed:
            continue
        slots = classes.setdefault(storage.sharing, [])
        free = next((s for s in slots if storage.sharing and not block.meets(s[-1])), None)
        if free is None:
            slots.append([block])
        else:
            free.append(block)
    for slots in classes.values():
        for slot in slots:
            names = tuple(n for b in slot for n in b.storages)
            size = max(b.nbytes for b in slot)
            first, last = (slot[0].first, max(b.last for b in slot)) if lend else whole_run
            out.append(Block(storages=names, nbytes=size, first=first, last=last))
    return out


def _cleared(
    blocks: Sequence[Block], partition: Partition, offsets: Mapping[str, int]
) -> tuple[tuple[int, str], ...]:
    """Before which call which halo must be zeroed, as others lie there at other times."""

    def overlap(one: Block, other: Block) -> bool:
        start, end = (offsets[b.storages[0]] for b in (one, other))
        return one is not other and start < end + other.nbytes and end < start + one.nbytes

    return tuple(
        (block.first, block.storages[0])
        for block in sorted(blocks, key=lambda b: (b.first, b.storages))
        if block.storages[0] in partition.storages
        and partition.storages[block.storages[0]].zeroed
        and any(overlap(block, other) for other in blocks)
    )


# --------------------------------------------------------------------------------------- placement


def _smallest_plan(blocks: Sequence[Block]) -> tuple[int, dict[str, int]]:
    orders = (
        sorted(blocks, key=lambda b: (-b.nbytes, b.first, b.storages)),
        sorted(blocks, key=lambda b: (-(b.last - b.first), -b.nbytes, b.storages)),
    )
    return min((_promoted(order) for order in orders), key=lambda plan: plan[0])


def _promoted(order: list[Block]) -> tuple[int, dict[str, int]]:
    """The smallest plan of an order and of those in which, time after time, the block that ends
    last is placed first: until no more memory is taken than is alive at once, or `PROMOTIONS`."""
    least, best = _least_bytes(order), _place(order)
    for _ in range(PROMOTIONS):
        total, offsets = found = _place(order)
        best = min(best, found, key=lambda plan: plan[0])
        if total <= least:
            break
        last = max(order, key=lambda b: offsets[b.storages[0]] + b.nbytes)
        order = [last, *(b for b in order if b is not last)]
    return best


def _least_bytes(blocks: Sequence[Block]) -> int:
    starts = {b.first for b in blocks}
    alive = (sum(b.nbytes for b in blocks if b.first <= at <= b.last) for at in starts)
    return max(alive, default=0)


def _place(order: Sequence[Block]) -> tuple[int, dict[str, int]]:
    """Blocks in the order given, each in the smallest gap that holds it. (total, offsets)."""
    placed: list[tuple[int, Block]] = []
    for block in order:
        taken = sorted((at, at + b.nbytes) for at, b in placed if b.meets(block))
        placed.append((_best_gap(taken, block.nbytes), block))
    total = max((at + b.nbytes for at, b in placed), default=0)
    return total, {name: at for at, b in placed for name in b.storages}


def _best_gap(taken: Sequence[tuple[int, int]], nbytes: int) -> int:
    """Start of the tightest gap between sorted intervals; the end of them all if none fits."""
    best: tuple[int, int] | None = None
    end = 0
    for start, stop in taken:
        if start - end >= nbytes and (best is None or start - end < best[0]):
            best = (start - end, end)
        end = max(end, stop)
    return end if best is None else best[1]
