"""The node cases of ONNX's own backend test, as they are made: which come out right.

    python benchmarks/correctness/onnx_nodes.py [WORD ...] [--no-fallback] [--only right|wrong|...]
        [--json F]

A case is a model of one operator with arrays for its inputs and outputs. Nothing is fixed by hand:
`autotune.compile` gets the model's bytes, `run` the arrays. Counted apart is what the product then
does by itself: kernels for the case's sizes where the model leaves sizes open, kernels for values
of the case that decide shapes (these are constants in them), nodes that others run. WORDs choose
cases whose names have one of them. Each process takes cases until it ends; one that a process dies
at is counted as `dies`.
"""

from __future__ import annotations

import argparse
import collections
import json
import re
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx

RIGHT = ("as it is", "its sizes compiled", "its values compiled", "in stages", "fallback")
"""How a case came out right, in order of what was done by ourselves."""


def cases(words: list[str]) -> list[Any]:
    """Cases whose names have one of the words, all of them without words."""
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        every = collect_testcases(None)
    return [c for c in every if not words or any(word in c.name for word in words)]


def outcome(case: Any, fallback: bool, target: str) -> tuple[str, str]:
    """(what became of a case, the reason where it is not right)."""
    import autotune

    feeds, expected = (list(map(array_of, values)) for values in case.data_sets[0])
    names = [info.name for info in case.model.graph.input]
    given = dict(zip(names, feeds, strict=False))
    try:
        model = autotune.compile(
            case.model.SerializeToString(), machine="nominal", fallback=fallback, target=target
        )
        found = model.run(given)
    except autotune.InputError as error:
        return "refused", str(error)
    except Exception as error:
        return "fails", f"{type(error).__name__}: {error}"
    for (name, got), want in zip(found.items(), expected, strict=False):
        if flaw := difference(got, want, case.rtol, case.atol):
            return "wrong", f"{name}: {flaw}" + (f" ({model.notes[0]})" if model.notes else "")
    if isinstance(model, autotune.CompiledModel):
        return "as it is", ""
    if isinstance(model, autotune.SizedModel):
        return "its sizes compiled", ""
    if not model.own:
        return "fallback", "; ".join(model.notes)
    return ("its values compiled" if model.deciding else "in stages"), ""


def array_of(value: Any) -> Any:
    """Some cases have their arrays as ONNX's tensors."""
    if isinstance(value, list):
        return list(map(array_of, value))
    if isinstance(value, onnx.TensorProto):
        return onnx.numpy_helper.to_array(value)
    return value


def difference(got: Any, want: Any, rtol: float, atol: float) -> str:
    """Empty where a result is what the case says; sequences element by element."""
    if want is None or isinstance(want, list):
        same = got is None if want is None else len(got) == len(want)
        if not same:
            return f"{type(got).__name__} for {type(want).__name__}"
        pairs = zip(got or [], want or [], strict=True)
        return next(filter(None, (difference(g, w, rtol, atol) for g, w in pairs)), "")
    got, want = np.asarray(got), np.asarray(want)
    if got.dtype.kind in "OUS" or want.dtype.kind in "OUS":
        return "" if got.astype(str).tolist() == want.astype(str).tolist() else "other strings"
    if got.shape != want.shape or got.dtype != want.dtype:
        return f"{got.dtype}{list(got.shape)} for {want.dtype}{list(want.shape)}"
    if got.dtype.kind not in "fV" and not got.dtype.name.startswith(("bfloat", "float")):
        return "" if np.array_equal(got, want) else "other numbers"
    wide = (got.astype(np.float64), want.astype(np.float64))
    return "" if np.allclose(*wide, rtol=rtol, atol=atol, equal_nan=True) else "other numbers"


def serve(words: list[str], first: int, fallback: bool, target: str) -> None:
    """Every case from `first` on, a JSON line each."""
    warnings.simplefilter("ignore")
    for number, case in enumerate(cases(words)):
        if number >= first:
            print(json.dumps([number, "began", ""]), flush=True)
            print(json.dumps([number, *outcome(case, fallback, target)]), flush=True)


def found(words: list[str], fallback: bool, target: str) -> dict[int, tuple[str, str]]:
    """By number of a case what became of it."""
    out: dict[int, tuple[str, str]] = {}
    first, count = 0, len(cases(words))
    while first < count:
        command = [sys.executable, __file__, *words, "--serve", str(first), "--target", target]
        command += [] if fallback else ["--no-fallback"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]
        out.update({n: (kind, why) for n, kind, why in lines if kind != "began"})
        begun = max((n for n, *_ in lines), default=first)
        if begun not in out:
            out[begun] = "dies", f"exit status {done.returncode}: {done.stderr[-200:]}"
        first = begun + 1
    return out


def plain(reason: str) -> str:
    """A reason without what differs from case to case."""
    text = re.sub(r"\(node '[^']*', opset \d+\)|'[^']*'", "...", reason)
    return re.sub(r"\d+", "#", text)[:120]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("words", nargs="*")
    parser.add_argument("--no-fallback", action="store_true")
    parser.add_argument("--target", default="cpu")
    parser.add_argument("--json", type=Path, help="write what became of every case")
    parser.add_argument("--serve", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve is not None:
        serve(options.words, options.serve, not options.no_fallback, options.target)
        return
    every = cases(options.words)
    results = found(options.words, not options.no_fallback, options.target)
    if options.json:
        rows = {every[n].name: result for n, result in sorted(results.items())}
        options.json.write_text(json.dumps(rows, indent=1))
    counts = collections.Counter(kind for kind, _ in results.values())
    own = sum(counts[kind] for kind in RIGHT[:-1])
    print(f"{len(every)} cases: {own} right by own kernels, {own + counts['fallback']} in all")
    for kind, count in counts.most_common():
        print(f"  {count:5} {kind}")
    reasons = collections.Counter(
        (kind, every[n].model.graph.node[0].op_type, plain(why))
        for n, (kind, why) in results.items()
        if kind not in RIGHT
    )
    for (kind, operator, why), count in reasons.most_common():
        print(f"  {count:5} {kind} {operator}: {why}")


if __name__ == "__main__":
    main()
