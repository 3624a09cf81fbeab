"""Generated rewrites: both proofs of those that ship, and what the generator leaves out."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from pathlib import Path

import pytest

from autotune.cli import execute
from autotune.graph.build import GraphBuilder
from autotune.rewrite.derive import Deriver
from autotune.rewrite.enumeration import pairs
from autotune.rewrite.files import GENERATED, generated, generated_for, shipped
from autotune.rewrite.generate import generate, written
from autotune.rewrite.parse import parse
from autotune.rewrite.prove import UnprovenError, prove
from autotune.rewrite.provers import generated_deriver
from autotune.rewrite.pruning import Known
from autotune.rewrite.rule import Rewrite
from autotune.rewrite.themes import themes
from autotune.types import TensorType

FEWEST = 1000
PARTS = 6


@functools.cache
def deriver() -> Deriver:
    return generated_deriver()


def test_there_are_many_and_none_is_there_twice() -> None:
    assert len(generated()) >= FEWEST
    assert len({str(r).partition("\n")[2] for r in generated()}) == len(generated())
    assert not {r.name for r in generated()} & {r.name for r in shipped()}


@pytest.mark.parametrize("rewrite", generated()[::40], ids=lambda r: r.name)
def test_a_sample_has_both_proofs(rewrite: Rewrite) -> None:
    assert prove(rewrite).error < 1e-12
    deriver().derive(rewrite)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_every_one_that_ships_has_both_proofs(part: int) -> None:
    for rewrite in generated()[part::PARTS]:
        assert prove(rewrite).error < 1e-12
        deriver().derive(rewrite)


def changed(rewrite: Rewrite) -> Rewrite:
    """The rewrite with the last right side negated."""
    left, _, right = str(rewrite).rpartition("\n    to ")
    (wrong,) = parse(f"{left}\n    to neg({right})")
    return wrong


@pytest.mark.parametrize("proof", [prove, lambda r: deriver().derive(r)], ids=["field", "derived"])
def test_neither_proof_takes_a_wrong_one(proof: Callable[[Rewrite], object]) -> None:
    for rewrite in generated()[::60]:
        with pytest.raises(UnprovenError):
            proof(changed(rewrite))


def small(*names: str) -> list[Rewrite]:
    return list(generate(names, shipped(), lambda _: None, processes=1))


@pytest.mark.slow
def test_a_theme_is_generated_the_same_again() -> None:
    first, again = small("functions-cut"), small("functions-cut")
    assert written(first) == written(again)
    assert first


@pytest.mark.slow
def test_what_follows_from_a_smaller_one_is_left_out() -> None:
    found = {(str(r.left[0]), str(r.right[0])) for r in small("functions-turned")}
    turned = "perm=(*tuple(range(len(s))), len(s) + 1, len(s))"
    assert any("relu(transpose" in f"{one}{other}" for one, other in found)
    twice = f"transpose(relu(transpose(x, {turned})), {turned})"
    assert not any(twice in pair for pair in found)


@pytest.mark.slow
def test_equal_terms_are_found_by_their_fingerprints() -> None:
    (sums,) = (f for f in themes() if f.name == "sums")
    there = {(str(p.one.term), str(p.other.term)) for p in pairs(sums)}
    assert ("neg(neg(x))", "x") in there
    assert ("add(mul(x, y), mul(x, z))", "mul(x, add(y, z))") in there
    assert not any(str(p.one.term) == str(p.other.term) for p in pairs(sums))


@pytest.mark.slow
def test_what_follows_in_three_steps_is_left_out() -> None:
    """a - ((-b) - c) is b + (a + c): a difference of a difference, one of what is negated twice,
    and a sum in another order."""
    (sums,) = (f for f in themes() if f.name == "sums")
    known = Known()
    for rewrite in (*shipped(), *generated()):
        known.add(rewrite)
    few = tuple(o for o in sums.operators if o.op != "mul")
    found = list(pairs(dataclasses.replace(sums, operators=few, most=3)))
    farther = [p for p in found if not known.has(p) and known.leads_to(p)]
    assert farther
    texts = {f"{r.left[0]} = {r.right[0]}" for r in generated()}
    assert not {f"{p.one.term} = {p.other.term}" for p in farther} & texts
    (one, *_), (other, *_) = farther, [p for p in farther if p.other.term != farther[0].other.term]
    assert not known.leads_to(dataclasses.replace(one, other=other.other))


def test_only_what_a_graph_may_use_is_read() -> None:
    b = GraphBuilder("few")
    x = b.input("x", TensorType(dtype="float32", shape=(8, 8)))
    y = b.input("y", TensorType(dtype="float32", shape=(8, 8)))
    graph = b.finish([("out", b.op("add", b.op("relu", b.op("transpose", x, perm=(1, 0))), y))])
    found = generated_for(graph)
    assert len(found) < len(generated()) / 20
    assert all(r.saves for r in found)
    nothing = GraphBuilder("none")
    x = nothing.input("x", TensorType(dtype="float32", shape=(8,)))
    assert generated_for(nothing.finish([("out", nothing.op("softmax", x))])) == ()


def sections(text: str) -> dict[str, str]:
    """The file's head, by no name, and what it has of each set of operators."""
    head, *parts = text.split("\n# -- ")
    return {
        "": head,
        **{name: body.strip() for name, _, body in (p.partition("\n") for p in parts)},
    }


def test_the_command_writes_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What rows of images and parts of functions give is in the file that ships, byte for byte."""
    path = tmp_path / "more.rewrites"
    wanted = ["--theme", "rows-of-images", "--theme", "functions-cut"]
    assert execute(["rewrite", "generate", *wanted, "-o", str(path)]) == 0
    assert "may save work" in capsys.readouterr().out
    found = sections(path.read_text(encoding="utf-8"))
    assert found.pop("") == sections(GENERATED.read_text(encoding="utf-8"))[""]
    assert {"layer_norm, reshape", "reshape, softmax", "abs, slice"} <= found.keys()
    del found["neg"]  # of other shapes where an earlier theme found it
    assert found.items() <= sections(GENERATED.read_text(encoding="utf-8")).items()
    assert execute(["rewrite", "generate", "--theme", "none"]) == 2
    assert "there is no theme 'none'; there are sums" in capsys.readouterr().err
    assert execute(["rewrite", "list", "-o", str(path)]) == 2
    assert capsys.readouterr().err.startswith("error: -o is where")


def test_the_file_reads_back_as_it_is_written() -> None:
    text = GENERATED.read_text(encoding="utf-8")
    assert written(generated()) == text
