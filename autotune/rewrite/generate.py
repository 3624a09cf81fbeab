"""Rewrites that nobody had to find: enumerated, pruned, and proven twice.

In: themes. Out: equations in the order of their sizes, each evaluated over the field and derived
from properties of operators. The same every time, however many processes take part.
"""

from __future__ import annotations

import dataclasses
import functools
import multiprocessing
import textwrap
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor

from autotune.rewrite import expressions
from autotune.rewrite.derive import Deriver, Effort, properties
from autotune.rewrite.enumeration import Pair, light, pairs
from autotune.rewrite.parse import leaves, parse
from autotune.rewrite.prove import INSTANCES, UnprovenError, operators, prove
from autotune.rewrite.pruning import Known, renamed_key
from autotune.rewrite.rule import Application, Rewrite
from autotune.rewrite.themes import themes
from autotune.rewrite.work import saves

Say = Callable[[str], None]
END = ((5, 3), ("max", "relu"))
"""Where proving ends: operators of both sides and of the first; names of operators. The order is
by sizes, so what is left is larger or of later names; it is left for the time that it takes."""
_BATCH = 32
"""Equations that are proven side by side, before what is left is pruned by them."""
_EFFORT = Effort(
    helpers=(frozenset(), frozenset({"add", "neg"})),
    nodes=200, rounds=4, graphs=3, spare=True,
)  # fmt: skip
"""Less than for what is written by hand: most of what is asked for does not follow."""
_COLUMNS = 99
_HEAD = """# Rewrites that were generated: `autotune rewrite generate -o FILE` writes it again.
# Each is proven by evaluation and derived from properties, and follows from no smaller one by a
# single step. What `saves` may be less work from left to right: `--rewrites all` looks for it."""


def generate(
    names: Sequence[str], known: Sequence[Rewrite], say: Say, processes: int = 2
) -> Iterator[Rewrite]:
    """The equations of themes that have both proofs and follow from no smaller one, nor from
    `known`."""
    there, hopeless = Known(), Known()
    for rewrite in known:
        there.add(rewrite)
    counts: dict[str, int] = {}
    start = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=start) as pool:
        found = (p for p in _found(names, pool, say) if _order(p)[:2] < END)
        waiting = sorted(found, key=_order)
        for batch in _batches(waiting, there, hopeless):
            rewrites = [_rewrite(pair) for pair in batch]
            proofs = pool.map(_unproven, rewrites, chunksize=_BATCH // processes)
            for pair, rewrite, why in zip(batch, rewrites, proofs, strict=True):
                if why:
                    say(f"left out: {why}")
                    hopeless.add(rewrite)
                elif not there.has(pair):
                    there.add(rewrite)
                    counts[rewrite.name] = counts.get(rewrite.name, 0) + 1
                    name = f"{rewrite.name}-{counts[rewrite.name]}"
                    named = dataclasses.replace(rewrite, name=name, saves=saves(rewrite))
                    (plain,) = parse(str(named))  # as a file is read back
                    yield plain


def _batches(waiting: Sequence[Pair], there: Known, hopeless: Known) -> Iterator[list[Pair]]:
    """What says something new, of one size each, some at a time; asked for again after each."""
    batch: list[Pair] = []
    for pair in waiting:
        if batch and (len(batch) == _BATCH or _order(pair)[0] != _order(batch[0])[0]):
            yield batch
            batch = []
        if not there.has(pair) and not hopeless.has(pair):
            batch.append(pair)
    if batch:
        yield batch


def _found(names: Sequence[str], pool: Executor, say: Say) -> list[Pair]:
    """What seems to be equal, each once."""
    found: dict[str, Pair] = {}
    for name, some in zip(names, pool.map(_of_theme, names), strict=True):
        count = len(found)
        for key, pair in some.items():
            found.setdefault(key, pair)
        say(f"{name}: {len(found) - count} pairs of equal terms")
    return list(found.values())


def _of_theme(name: str) -> dict[str, Pair]:
    (theme,) = (t for t in themes() if t.name == name)
    found: dict[str, Pair] = {}
    for pair in pairs(theme):
        turned = _usable(pair)
        if turned is not None and renamed_key(turned) not in found:
            found[renamed_key(turned)] = light(turned)
    return found


@functools.cache
def _deriver() -> Deriver:
    return generated_deriver()


def generated_deriver() -> Deriver:
    """A deriver of generated rewrites, as they were derived when they were generated."""
    return Deriver(properties(), _EFFORT)


def _unproven(rewrite: Rewrite) -> str:
    """Why one of the proofs is missing; nothing where both are there."""
    try:
        (read,) = parse(str(rewrite))
        prove(read)
        _deriver().derive(read)
    except UnprovenError as error:
        return str(error)
    return ""


def written(rewrites: Sequence[Rewrite]) -> str:
    """A file's text: by the operators that occur, few first, and as they were found."""
    groups: dict[tuple[str, ...], list[Rewrite]] = {}
    for rewrite in rewrites:
        groups.setdefault(tuple(sorted(operators(rewrite))), []).append(rewrite)
    parts = [_HEAD]
    for names in sorted(groups, key=lambda g: (len(g), g)):
        parts.append(f"# -- {', '.join(names)}")
        parts += [_wrapped(str(rewrite)) for rewrite in groups[names]]
    return "\n\n".join(parts) + "\n"


def _wrapped(text: str) -> str:
    """Lines of at most so many columns, as they are read back."""
    out = []
    for line in text.splitlines():
        fill = textwrap.TextWrapper(
            _COLUMNS, subsequent_indent=" " * 12, break_long_words=False, break_on_hyphens=False
        )
        out.append("\n".join(fill.wrap(line)) if len(line) > _COLUMNS else line)
    return "\n".join(out)


def _sizes(pair: Pair) -> tuple[int, int]:
    """Operators of both sides, and of the first."""
    return pair.one.size + pair.other.size, pair.one.size


def _order(pair: Pair) -> tuple[tuple[int, int], tuple[str, ...], int, int, str]:
    """Smaller ones first; those of the same operators together, since they share properties; of
    these those over more values, of which others are cases."""
    used = leaves(pair.one.term)
    dims = sum(len(v.shape) for v in pair.header.values if v.name in used)
    there = {*_operators(pair.one.term), *_operators(pair.other.term)}
    return (_sizes(pair), tuple(sorted(there)), -len(used), dims, renamed_key(pair))


def _usable(pair: Pair) -> Pair | None:
    """The pair, turned where its second term has what its first one does not; None where both
    have."""
    one, other = _given(pair, pair.one.term), _given(pair, pair.other.term)
    if _shapes(pair, pair.one.term) < INSTANCES:
        return None  # one dimension alone, of which there are too few sizes
    if other <= one:
        return pair
    alike = pair.one.size == pair.other.size
    return Pair(pair.header, pair.other, pair.one) if alike and one <= other else None


def _shapes(pair: Pair, term: Application | str) -> int:
    """About how many small shapes a pair may have."""
    dims = {d for v in pair.header.values if v.name in leaves(term) for d in v.shape}
    free = {n for d in pair.header.domains for n in [d.name] if n in _symbols(term)}
    sizes = 4 ** len({d for d in dims if d.isidentifier()} | free)
    return int(sizes) * (16 if "*s" in dims else 1)


def _given(pair: Pair, term: Application | str) -> frozenset[str]:
    """Values, and symbols of attributes and dimensions, that a term names."""
    used = leaves(term)
    dims = {d.lstrip("*") for v in pair.header.values if v.name in used for d in v.shape}
    return frozenset(used | dims | _symbols(term))


def _symbols(term: Application | str) -> frozenset[str]:
    if isinstance(term, str):
        return frozenset()
    own = {n for _, text in term.attrs for n in expressions.names(text)}
    return frozenset(own.union(*map(_symbols, term.args)))


def _operators(term: Application | str) -> list[str]:
    if isinstance(term, str):
        return []
    return [term.op.replace("_", "-"), *(op for a in term.args for op in _operators(a))]


def _rewrite(pair: Pair) -> Rewrite:
    """The pair by the name of its operators, with what it needs of its theme's header."""
    header = pair.header
    given = _given(pair, pair.one.term) | _given(pair, pair.other.term)
    assert isinstance(pair.one.term, Application)
    return Rewrite(
        name="-".join(_operators(pair.one.term)),
        values=tuple(v for v in header.values if v.name in given),
        domains=tuple(d for d in header.domains if d.name in given),
        defines=(),
        where=tuple(t for t in header.where if expressions.names(t) <= given),
        drawn=tuple((n, t) for n, t in header.drawn if {n, *expressions.names(t)} <= given),
        left=(pair.one.term,), lets=(), right=(pair.other.term,),
    )  # fmt: skip
