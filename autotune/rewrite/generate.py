"""Rewrites that nobody had to find: enumerated, pruned, and proven twice.

In: themes. Out: equations in the order of their sizes, each evaluated over the field and derived
from properties of operators. The same every time, however many processes take part.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
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
from autotune.rewrite.several import several_in
from autotune.rewrite.themes import CHAPTERS, themes
from autotune.rewrite.work import saves

Say = Callable[[str], None]
Candidate = tuple[Pair, ...]
"""A pair of terms, or several that share what they become parts of."""
_MOST_OPERATORS = 5
"""Operators of both sides, at most, of equations of one result: larger ones are many, take most of
the time, and mostly say in what order things may be."""
_BATCH = 64
"""Equations that are proven side by side, before what is left is pruned by them."""
_KEPT_BATCHES = 4
"""Batches that share what their derivations found."""
_EFFORT = Effort(
    helpers=(frozenset(), frozenset({"transpose"}), frozenset({"add", "neg"})),
    nodes=100, rounds=4, graphs=3, spare=True,
)  # fmt: skip
"""Less than for what is written by hand: most of what is asked for does not follow."""
_COLUMNS = 99
_WHOLE = "both"
"""The name of what several results are parts of."""
_HEAD = """# Rewrites that were generated: `autotune rewrite generate -o FILE` writes it again.
# Each is proven by evaluation and derived from properties, and follows from smaller ones by no
# step, nor by one or two and another that leaves operators out. What `saves` may be less work from
# left to right: `--rewrites all` looks for it."""


def generate(
    names: Sequence[str], known: Sequence[Rewrite], say: Say, processes: int = 2
) -> Iterator[Rewrite]:
    """The equations of themes that have both proofs and follow from no smaller one, nor from
    `known` or a chapter before; of several results only where that may save work."""
    there = Known()
    for rewrite in known:
        there.add(rewrite)
    counts: dict[str, int] = {}
    start = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=start) as pool:
        for chapter in CHAPTERS:
            wanted = [name for name in names if name in chapter]
            waiting = sorted(filter(_is_small, _found(wanted, pool, say)), key=_order)
            say(f"{len(waiting)} of them are small enough to be proven")
            for rewrite in _proven(waiting, there, pool, say, processes):
                yield _named(rewrite, counts)


def _proven(
    waiting: Sequence[Candidate], there: Known, pool: Executor, say: Say, processes: int
) -> Iterator[Rewrite]:
    """Those of a chapter that have both proofs and do not follow; what is there grows by them."""
    hopeless = Known()
    for number, batch in enumerate(_batches(waiting, there, hopeless)):
        rewrites = [_rewrite(candidate) for candidate in batch]
        proofs = pool.map(
            _unproven, rewrites, itertools.repeat(number // _KEPT_BATCHES),
            chunksize=_BATCH // processes,
        )  # fmt: skip
        for candidate, rewrite, why in zip(batch, rewrites, proofs, strict=True):
            if why:
                say(f"left out: {why}")
                hopeless.add(rewrite)
            elif not _follows(candidate, there):
                new = len(candidate) > 1 or not there.leads_to(candidate[0])
                there.add(rewrite)
                if new and (len(candidate) == 1 or saves(rewrite)):
                    yield rewrite


def _named(rewrite: Rewrite, counts: dict[str, int]) -> Rewrite:
    """The rewrite under a name that no other has, as a file is read back."""
    saving = saves(rewrite)
    counts[rewrite.name] = counts.get(rewrite.name, 0) + 1
    name = f"{rewrite.name}-{counts[rewrite.name]}"
    (plain,) = parse(str(dataclasses.replace(rewrite, name=name, saves=saving)))
    return plain


def _follows(candidate: Candidate, known: Known) -> bool:
    return known.has(candidate[0]) if len(candidate) == 1 else known.has_all(candidate)


def _batches(
    waiting: Sequence[Candidate], there: Known, hopeless: Known
) -> Iterator[list[Candidate]]:
    """What says something new, of one size each, some at a time; asked for again after each."""
    batch: list[Candidate] = []
    for candidate in waiting:
        if batch and (len(batch) == _BATCH or _order(candidate)[:2] != _order(batch[0])[:2]):
            yield batch
            batch = []
        if not _follows(candidate, there) and not _follows(candidate, hopeless):
            batch.append(candidate)
    if batch:
        yield batch


def _found(names: Sequence[str], pool: Executor, say: Say) -> list[Candidate]:
    """What seems to be equal, each once."""
    found: dict[str, Candidate] = {}
    for name, some in zip(names, pool.map(_of_theme, names), strict=True):
        count = len(found)
        for key, candidate in some.items():
            found.setdefault(key, candidate)
        say(f"{name}: {len(found) - count} pairs of equal terms")
    return list(found.values())


def _of_theme(name: str) -> dict[str, Candidate]:
    (theme,) = (t for t in themes() if t.name == name)
    found: dict[str, Candidate] = {}
    every = list(map(light, pairs(theme)))
    for pair in every:
        turned = _usable(pair)
        if turned is not None:
            found.setdefault(renamed_key(turned), (turned,))
    return found | several_in(every)


def _is_small(candidate: Candidate) -> bool:
    """Whether it is tried."""
    pair = candidate[0]
    return len(candidate) > 1 or pair.one.size + pair.other.size <= _MOST_OPERATORS


@functools.lru_cache(maxsize=1)
def _deriver(_batches: int) -> Deriver:
    """One for some batches: it keeps what it derived, and would grow to gigabytes."""
    return generated_deriver()


def generated_deriver() -> Deriver:
    """A deriver of generated rewrites, as they were derived when they were generated."""
    return Deriver(properties(), _EFFORT)


def _unproven(rewrite: Rewrite, batches: int) -> str:
    """Why one of the proofs is missing; nothing where both are there. `batches`: which of those
    that share a deriver it is of."""
    try:
        (read,) = parse(str(rewrite))
        prove(read)
        _deriver(batches).derive(read)
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


def _order(candidate: Candidate) -> tuple[int, tuple[int, int], tuple[str, ...], int, int, str]:
    """Those of several results first, then smaller ones; those of the same operators together,
    since they share properties; of these those over more values, of which others are cases."""
    pair = candidate[0]
    sizes = sum(p.one.size for p in candidate) + pair.other.size, pair.one.size
    used = frozenset().union(*(leaves(p.one.term) for p in candidate))
    dims = sum(len(v.shape) for v in pair.header.values if v.name in used)
    there = {op for p in candidate for t in (p.one, p.other) for op in _operators(t.term)}
    return (
        -len(candidate), sizes, tuple(sorted(there)), -len(used), dims, renamed_key(*candidate)
    )  # fmt: skip


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


def _rewrite(candidate: Candidate) -> Rewrite:
    """The candidate by the names of its operators, with what it needs of its theme's header."""
    header = candidate[0].header
    given = frozenset().union(*(_given(p, t.term) for p in candidate for t in (p.one, p.other)))
    left = [pair.one.term for pair in candidate]
    right = [pair.other.term for pair in candidate]
    lets: list[tuple[str, Application]] = []
    if len(candidate) > 1:
        cuts = [term for term in right if isinstance(term, Application)]
        lets += [(_WHOLE, term) for term in cuts[0].args if isinstance(term, Application)]
        right = [Application(cut.op, (_WHOLE,), cut.attrs) for cut in cuts]
    return Rewrite(
        name="-and-".join("-".join(_operators(term)) for term in left),
        values=tuple(v for v in header.values if v.name in given),
        domains=tuple(d for d in header.domains if d.name in given),
        defines=(),
        where=tuple(t for t in header.where if expressions.names(t) <= given),
        drawn=tuple((n, t) for n, t in header.drawn if {n, *expressions.names(t)} <= given),
        left=tuple(t for t in left if isinstance(t, Application)), lets=tuple(lets),
        right=tuple(right),
    )  # fmt: skip
