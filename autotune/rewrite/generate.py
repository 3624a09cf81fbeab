"""Rewrites that nobody had to find: enumerated, pruned, and proven twice.

In: themes. Out: equations in the order of their sizes, each evaluated over the field and derived
from properties of operators. The same every time, however many processes take part.
"""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Callable, Iterator, Sequence

from autotune.rewrite import expressions
from autotune.rewrite.enumeration import Pair, light, pairs
from autotune.rewrite.parse import leaves, parse
from autotune.rewrite.prove import INSTANCES, operators
from autotune.rewrite.provers import Provers
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
_TOLD = 500
"""Equations between two lines of progress."""
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
    with Provers(processes) as provers:
        for chapter in CHAPTERS:
            wanted = [name for name in names if name in chapter]
            waiting = sorted(filter(_is_small, _found(wanted, provers, say)), key=_order)
            say(f"{len(waiting)} of them are small enough to be proven")
            for rewrite in _proven(waiting, there, provers, say):
                yield _named(rewrite, counts)


def _proven(
    waiting: Sequence[Candidate], there: Known, provers: Provers, say: Say
) -> Iterator[Rewrite]:
    """Those of a chapter that have both proofs and do not follow; what is there grows by them."""
    hopeless = Known()
    for batch in _batches(waiting, there, hopeless, say):
        rewrites = [_rewrite(candidate) for candidate in batch]
        proofs = provers.unproven(rewrites)
        for candidate, rewrite, why in zip(batch, rewrites, proofs, strict=True):
            if why:
                say(f"left out: {why}: {'; '.join(_equations(rewrite))}")
                hopeless.add(rewrite)
            elif not _follows(candidate, there):
                new = len(candidate) > 1 or not there.leads_to(candidate[0])
                there.add(rewrite)
                if new and (len(candidate) == 1 or saves(rewrite)):
                    yield rewrite


def _equations(rewrite: Rewrite) -> Iterator[str]:
    for left, right in zip(rewrite.left, rewrite.right, strict=True):
        yield f"{left} = {right}"


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
    waiting: Sequence[Candidate], there: Known, hopeless: Known, say: Say
) -> Iterator[list[Candidate]]:
    """What says something new, of one size each, some at a time; asked for again after each."""
    batch: list[Candidate] = []
    for number, candidate in enumerate(waiting):
        if number % _TOLD == 0:
            say(f"{number} of {len(waiting)} looked at")
        if batch and (len(batch) == _BATCH or _order(candidate)[:2] != _order(batch[0])[:2]):
            yield batch
            batch = []
        if not _follows(candidate, there) and not _follows(candidate, hopeless):
            batch.append(candidate)
    if batch:
        yield batch


def _found(names: Sequence[str], provers: Provers, say: Say) -> list[Candidate]:
    """What seems to be equal, each once."""
    found: dict[str, Candidate] = {}
    for name, some in zip(names, provers.map(_of_theme, names), strict=True):
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
