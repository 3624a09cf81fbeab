"""PyTorch's own samples of its operators, compiled: which are right, and what of them is ours.

    python benchmarks/pytorch/torch_ops.py [WORD ...] [--dtypes float32,int64,bool,bfloat16]
                                   [--samples 4] [--part I/N] [--json FILE]

Every `OpInfo` of PyTorch's `op_db` is asked for samples of each element type that it has on CPUs;
the operator runs on each in eager and with `torch.compile(backend="autotune")`, for no machine.
WORDs choose operators by their names. A sample is right where PyTorch's tolerances for its element
type hold, or where it is no farther from what float64 gives than eager is; of operators that draw
numbers, or give memory as it is, only the forms are compared. An operator is `ours` where all its
samples are wholly ours, `partly` where eager runs some operators within the call, `eager` where it
runs all. A process takes operators until it ends; one that it dies at is counted as `dies`.
"""

from __future__ import annotations

import argparse
import collections
import json
import logging
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.utils import _pytree as pytree

DTYPES = ("float32", "int64", "bool", "bfloat16")
FLAWS = ("dies", "crash", "mismatch", "defect")
"""The worst first. A defect is one that the backend told of, and left the graph to eager."""
OUTCOMES = (*FLAWS, "eager", "partly", "ours", "no graph", "skipped")
DRAWS = (
    "rand", "normal", "bernoulli", "dropout", "multinomial", "uniform", "exponential", "cauchy",
    "geometric", "poisson", "empty", "rrelu",
)  # fmt: skip
"""Operators that draw numbers, or give memory as it is."""
ORDERS = ("topk", "sort", "argsort", "kthvalue", "mode", "median", "nanmedian", "msort")
"""Operators that may give equal elements in any order: what lies at their places is compared."""
LIMIT_S, WAIT_S = 60, 900
"""For one sample: processor time, which others' load does not count in, and, for what waits for
ever, time on the clock."""


class SlowSampleError(Exception):
    """A sample took longer than the limit."""


def names(words: Sequence[str]) -> list[str]:
    """Operators, by name and variant, which have one of the words; all of them without words."""
    every = [_name(info) for info in _infos()]
    return [n for n in every if not words or any(w in n for w in words)]


def _infos() -> list[Any]:
    from torch.testing._internal.common_methods_invocations import op_db

    return list(op_db)


def _name(info: Any) -> str:
    return f"{info.name}.{info.variant_test_name}" if info.variant_test_name else str(info.name)


def outcome(info: Any, dtype: torch.dtype, most: int) -> tuple[str, str]:
    """(what became of an operator's samples: the worst, or the least that is ours; why)."""
    found: list[tuple[str, str]] = []
    try:
        samples = list(info.sample_inputs("cpu", dtype, requires_grad=False))
    except Exception as error:
        return "skipped", f"no samples: {_line(error)}"
    for sample in _spread(samples, most):
        found.append(_sampled(info, sample))
        if found[-1][0] in FLAWS:
            break
    return min(found or [("skipped", "no samples")], key=lambda f: OUTCOMES.index(f[0]))


def _spread(samples: list[Any], most: int) -> list[Any]:
    """So many of them, evenly from the first to the last."""
    if len(samples) <= most:
        return samples
    return [samples[i * (len(samples) - 1) // max(most - 1, 1)] for i in range(most)]


def _sampled(info: Any, sample: Any) -> tuple[str, str]:
    function: Callable[..., Any] = info.op
    given = (sample.input, tuple(sample.args), dict(sample.kwargs))
    try:
        torch.manual_seed(0)
        expected = _called(function, _copied(given))
    except Exception as error:
        return "skipped", f"eager fails: {_line(error)}"
    told = _Told()
    try:
        with told, _limited():
            torch._dynamo.reset()
            torch.manual_seed(0)
            found = _called(told.compiled(function), _copied(given))
    except Exception as error:
        return "crash", _line(error)
    flaw = difference(
        info.name, given, found, expected, lambda: _called(function, _doubled(given))
    )
    if flaw:
        return "mismatch", flaw
    return told.outcome()


class _Told:
    """What the backend says while a sample is compiled."""

    def __init__(self) -> None:
        self.graphs = 0
        self.lines: list[str] = []
        self._handler = logging.Handler()
        self._handler.emit = lambda r: self.lines.append(r.getMessage())  # type: ignore[assignment, method-assign]
        self._caught = warnings.catch_warnings(record=True)
        self._warned: list[Any] | None = None

    def compiled(self, function: Callable[..., Any]) -> Callable[..., Any]:
        from autotune.torch import backend

        def counted(module: Any, inputs: Any) -> Any:
            self.graphs += 1
            options = {"machine": "nominal", "threads": 1, "min_gain": 0}
            return backend(module, inputs, options=options)

        made: Callable[..., Any] = torch.compile(function, backend=counted, dynamic=False)
        return made

    def __enter__(self) -> None:
        self._warned = self._caught.__enter__()
        warnings.simplefilter("always")
        logging.getLogger("autotune.torch").addHandler(self._handler)

    def __exit__(self, *_: object) -> None:
        logging.getLogger("autotune.torch").removeHandler(self._handler)
        self._caught.__exit__(None, None, None)

    def outcome(self) -> tuple[str, str]:
        defects = [str(w.message) for w in self._warned or () if "defect" in str(w.message)]
        if defects:
            return "defect", defects[0]
        if not self.graphs:
            return "no graph", "PyTorch records none"
        whole = [line for line in self.lines if "a graph runs in PyTorch" in line]
        some = [line for line in self.lines if "operators run in PyTorch" in line]
        for line in whole:
            return "eager", line
        for line in some:
            count, _, total = line.split(" operators", 1)[0].split(" ", 2)
            return ("eager" if count == total else "partly"), line.split(": ", 1)[1]
        return "ours", ""


def _called(function: Callable[..., Any], given: tuple[Any, Any, Any]) -> Any:
    with torch.no_grad():
        return function(given[0], *given[1], **given[2])


def _copied(given: Any) -> Any:
    return pytree.tree_map_only(torch.Tensor, _copy, given)


def _copy(tensor: torch.Tensor) -> torch.Tensor:
    """The same numbers, lying in memory as they do."""
    if tensor.layout is not torch.strided or tensor.numel() == 0:
        return tensor.clone()
    if tensor.is_conj() or tensor.is_neg():
        return tensor.clone()
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype).copy_(tensor)


def _doubled(given: Any) -> Any:
    def wide(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.double() if tensor.is_floating_point() else tensor.clone()

    return pytree.tree_map_only(torch.Tensor, wide, given)


def _same_elements(data: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two tensors are places of equal elements along a dimension, which may be gone."""
    if a.dtype != torch.int64 or data.dim() - a.dim() not in (0, 1) or not data.dim():
        return False
    for dim, extent in enumerate(data.shape):
        one, other = (t if t.dim() == data.dim() else t.unsqueeze(dim) for t in (a, b))
        around = [n for d, n in enumerate(one.shape) if d != dim]
        fits = one.dim() == data.dim() and around == [
            n for d, n in enumerate(data.shape) if d != dim
        ]
        if not fits or ((one < 0) | (one >= extent)).any():
            continue
        if torch.equal(data.gather(dim, one).nan_to_num(), data.gather(dim, other).nan_to_num()):
            return True
    return False


def difference(name: str, given: Any, found: Any, expected: Any, exact: Callable[[], Any]) -> str:
    """What distinguishes an operator's results; empty where nothing does. `exact`: gives what
    float64 does."""
    draws, orders = any(word in name for word in DRAWS), name in ORDERS
    one, other = pytree.tree_leaves(found), pytree.tree_leaves(expected)
    if len(one) != len(other):
        return f"{len(one)} results, expected {len(other)}"
    for place, (a, b) in enumerate(zip(one, other, strict=True)):
        if not isinstance(b, torch.Tensor):
            if draws or a == b or str(a) == str(b) == "nan":
                continue
            return f"result {place}: {a}, expected {b}"
        if a.shape != b.shape or a.dtype != b.dtype:
            return f"result {place}: {a.dtype}{[*a.shape]}, expected {b.dtype}{[*b.shape]}"
        if a.layout is torch.strided and a.numel() and not draws and a.stride() != b.stride():
            return f"result {place}: strides {a.stride()}, expected {b.stride()}"
        if draws:
            continue
        try:
            torch.testing.assert_close(a, b, equal_nan=True)
        except (AssertionError, ValueError, NotImplementedError, RuntimeError) as error:
            ordered = orders and (place or len(one) == 1) and _same_elements(given[0], a, b)
            if not ordered and not _as_near(a, b, place, exact):
                return f"result {place}: {' '.join(str(error).split())[:160]}"
    return ""


def _as_near(a: torch.Tensor, b: torch.Tensor, place: int, exact: Callable[[], Any]) -> bool:
    """Whether `a` is no farther from what float64 gives than twice what `b` is, and has no number
    where `b` has none."""
    if not a.is_floating_point():
        return False
    try:
        truth = pytree.tree_leaves(exact())[place].double()
    except Exception:
        return False
    numbers = b.isfinite()
    same = a.shape == truth.shape and torch.equal(a.isfinite(), numbers)
    if not same or not torch.equal(a[~numbers].nan_to_num(), b[~numbers].nan_to_num()):
        return False
    truth = truth[numbers]
    if not len(truth) or not bool(truth.isfinite().all()):
        return False
    ours, theirs = ((t[numbers].double() - truth).abs().max().item() for t in (a, b))
    unit = torch.finfo(a.dtype).eps * truth.abs().max().item()
    return bool(ours <= 2 * theirs + unit)


class _limited:  # noqa: N801 (it is used as a function is)
    """A sample that takes too long is given up."""

    _TIMERS = (
        (signal.ITIMER_PROF, signal.SIGPROF, LIMIT_S, "of processor time"),
        (signal.ITIMER_REAL, signal.SIGALRM, WAIT_S, "on the clock"),
    )

    def __enter__(self) -> None:
        for timer, number, seconds, kind in self._TIMERS:

            def late(*_: object, told: str = f"no result in {seconds} s {kind}") -> None:
                raise SlowSampleError(told)

            signal.signal(number, late)
            signal.setitimer(timer, seconds)

    def __exit__(self, *_: object) -> None:
        for timer, *_rest in self._TIMERS:
            signal.setitimer(timer, 0)


def _line(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"


# --------------------------------------------------------------------------------------- processes


def work(chosen: Sequence[str], dtypes: Sequence[str], most: int) -> None:
    """In a process of its own: a line of JSON for each operator and element type."""
    wanted = set(chosen)
    for info in _infos():
        name = _name(info)
        if name not in wanted:
            continue
        for dtype in dtypes:
            if getattr(torch, dtype) not in info.supported_dtypes("cpu"):
                continue
            print(f"BEGIN {name} {dtype}", flush=True)
            kind, why = outcome(info, getattr(torch, dtype), most)
            row = {"op": name, "dtype": dtype, "outcome": kind, "why": why}
            print("ROW " + json.dumps(row), flush=True)


def every_outcome(chosen: Sequence[str], dtypes: str, most: int) -> Iterator[dict[str, str]]:
    """A row for each operator and element type; who dies is left behind."""
    left = list(chosen)
    while left:
        command = [sys.executable, __file__, "--work", "--dtypes", dtypes, "--samples", str(most)]
        begun = ""
        with subprocess.Popen(
            [*command, *left], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        ) as process:
            assert process.stdout is not None
            for line in process.stdout:
                if line.startswith("BEGIN "):
                    begun = line[6:].strip()
                elif line.startswith("ROW "):
                    begun = ""
                    yield json.loads(line[4:])
        code = process.returncode
        if not begun:
            return
        name, dtype = begun.rsplit(" ", 1)
        yield {"op": name, "dtype": dtype, "outcome": "dies", "why": f"exit {code}"}
        left = left[left.index(name) + 1 :]


def table(rows: Sequence[dict[str, str]]) -> str:
    """Outcomes by element type."""
    dtypes = sorted({r["dtype"] for r in rows}, key=DTYPES.index)
    lines = [
        "| element type | " + " | ".join(OUTCOMES) + " |",
        "| --- " * (len(OUTCOMES) + 1) + "|",
    ]
    for dtype in dtypes:
        counts = collections.Counter(r["outcome"] for r in rows if r["dtype"] == dtype)
        lines.append(f"| {dtype} | " + " | ".join(str(counts[o]) for o in OUTCOMES) + " |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("words", nargs="*")
    parser.add_argument("--dtypes", default=",".join(DTYPES))
    parser.add_argument("--samples", type=int, default=4, help="samples of an operator at most")
    parser.add_argument("--part", default="1/1", help="the I-th of N parts of the operators")
    parser.add_argument("--json", help="a file for the rows")
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.work:
        work(args.words, args.dtypes.split(","), args.samples)
        return 0
    part, parts = map(int, args.part.split("/"))
    rows = []
    for row in every_outcome(names(args.words)[part - 1 :: parts], args.dtypes, args.samples):
        rows.append(row)
        if row["outcome"] not in ("ours", "skipped", "no graph"):
            print(f"{row['op']:40} {row['dtype']:9} {row['outcome']:9} {row['why']}", flush=True)
    print(table(rows))
    if args.json:
        Path(args.json).write_text(json.dumps(rows, indent=1))
    return any(r["outcome"] in FLAWS for r in rows)


if __name__ == "__main__":
    sys.exit(main())
