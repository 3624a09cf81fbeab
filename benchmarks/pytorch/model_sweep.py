"""Every kind of model that packages know, small and with random weights, compiled beside eager.

    python benchmarks/pytorch/model_sweep.py [timm] [torchvision] [transformers] --rows FILE
        [--names A,B] [--explain | --operators] [--limit 120] [--memory 6] [--within S] [--again]

One network of every family of timm, of every model type of transformers whose config can be made
small without knowing it (others are counted), and of every module of torchvision, each in a
process of its own (a fork of this one) with a limit on time and memory. A line each: the largest
and the median difference over the largest value of the worst result, processor seconds to the
first result, those of a call over eager's (the least of a few in turns), and what PyTorch runs,
and why. `--explain` compiles nothing, `--operators` records nothing either and names what eager
ran that there is no operator for. Rows are kept in a file, gone on with; `--table` prints it.
"""

from __future__ import annotations

import argparse
import collections
import json
import logging
import math
import multiprocessing
import resource
import signal
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.pytorch import tiny_models
from benchmarks.pytorch.captured_graphs import error

PLAIN = {"machine": "nominal", "threads": 1}
BREAKS = ("_local_scalar_dense", "nonzero", "_assert", "aten.item", "is_pinned", "equal.default")
"""Operators that end a graph or leave none."""
LARGEST, MEDIAN = 1e-3, 1e-4
"""What errors may be, in one network and in the median of all."""
BATCH_S = 0.08
"""Processor seconds of a batch of calls that is timed."""
WAITS = 8
"""Times a model's limit that are waited on the clock, where others have the processor."""
Row = dict[str, Any]


def outcome(package: str, name: str, how: str) -> Row:
    """A model, run by eager and compiled."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    logging.disable(logging.NOTSET)
    try:
        model, args, named = tiny_models.MAKERS[package](name)
    except Exception as problem:
        return {"not_made": _line(problem)}
    row: Row = {"million": round(sum(p.numel() for p in model.parameters()) / 1e6, 2)}
    with torch.no_grad():
        if how == "operators":
            return row | _operators(lambda: model(*args, **named))
        if how == "explain":
            return row | _explained(model, args, named)
        torch.manual_seed(1)
        expected = model(*args, **named)
        row |= _compiled(model, args, named, expected)
        if row.get("told"):
            torch._dynamo.reset()
            row |= _explained(model, args, named)
    return row


def _explained(model: Any, args: Any, named: Any) -> Row:
    from autotune.torch import explain

    try:
        found = explain(model, *args, **named)
    except Exception as problem:
        return {"fails": f"explain: {_line(problem)}"}
    reasons: collections.Counter[str] = collections.Counter()
    for graph in found.graphs:
        reasons.update(dict(graph.reasons))
    ours = sum(g.ours + g.quicker for g in found.graphs)
    whole = sum(not g.others for g in found.graphs)
    return {
        "graphs": len(found.graphs), "whole_graphs": whole, "ours": ours,
        "others": sum(g.others for g in found.graphs), "reasons": dict(reasons),
    }  # fmt: skip


def _operators(call: Callable[[], Any]) -> Row:
    """The operators that eager runs and there is none for here, also after PyTorch's
    decompositions; of complex numbers, and those whose sizes a run decides, which break graphs."""
    from autotune.frontend.torch.context import importer_of
    from autotune.frontend.torch.decompositions import decompositions

    known = decompositions()
    missing: collections.Counter[str] = collections.Counter()
    count = 0

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(
            self, operator: Any, _: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            nonlocal count
            made = operator(*args, **(kwargs or {}))
            count += 1
            tensors = [t for t in pytree.tree_leaves((args, made)) if isinstance(t, torch.Tensor)]
            if any(t.is_complex() for t in tensors):
                missing[f"{operator} of complex numbers"] += 1
            elif not any(importer_of(o) or o in known for o in _pure_forms(operator)):
                missing[str(operator)] += 1
            return made

    with Watch():
        call()
    reasons = {k: v for k, v in missing.items() if not any(w in k for w in BREAKS)}
    others = sum(reasons.values())
    return {"graphs": 1, "ours": count - others, "others": others, "reasons": reasons}


def _pure_forms(operator: Any) -> list[Any]:
    """An operator, and those of the same name that write to nothing."""
    name = operator.overloadpacket.__name__
    pure = getattr(torch.ops.aten, name.removesuffix("_"), None) if name[-1] == "_" else None
    return [operator, *(getattr(pure, o) for o in (pure.overloads() if pure else ()))]


def _compiled(model: Any, args: Any, named: Any, expected: Any) -> Row:
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda r: lines.append(r.getMessage())  # type: ignore[method-assign]
    logging.getLogger("autotune.torch").addHandler(handler)
    torch._dynamo.utils.counters.clear()
    compiled = torch.compile(model, backend="autotune", options=PLAIN)
    torch.manual_seed(1)
    start = time.process_time()
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            found = compiled(*args, **named)
        except Exception as problem:
            return {"fails": _line(problem)}
    first_s = time.process_time() - start
    told = lines + [str(w.message) for w in warned if "defect" in str(w.message)]
    torch.manual_seed(1)
    again = model(*args, **named)
    try:
        worst, median = error(expected, found), _median(expected, found)
        drawn = error(expected, again)
    except Exception as problem:
        return {"fails": f"results: {_line(problem)}"}
    if worst > LARGEST:
        drawn = max(drawn, _nudged(model, args, named, expected), _recorded(model, args, named))
    row = {
        "error": worst, "median": median, "eager_again": drawn, "first_s": round(first_s, 2),
        "graphs": torch._dynamo.utils.counters["stats"]["unique_graphs"],
        "breaks": sum(torch._dynamo.utils.counters["graph_break"].values()),
        "told": sorted(set(told)),
    }  # fmt: skip
    return row | _times(lambda: model(*args, **named), lambda: compiled(*args, **named))


def _nudged(model: Any, args: Any, named: Any, expected: Any) -> float:
    """The error of eager itself where inputs are moved by their last bits: choices among nearly
    equal ones (the best boxes of random weights) are anybody's."""
    generator = torch.Generator().manual_seed(2)

    def moved(given: Any) -> Any:
        if not isinstance(given, torch.Tensor) or not given.is_floating_point():
            return given
        return given * (1 + 3e-7 * torch.randn(given.shape, generator=generator))

    args, named = pytree.tree_map(moved, (args, named))
    torch.manual_seed(1)
    try:
        return float(error(expected, model(*args, **named)))
    except Exception:  # other numbers of boxes
        return float("inf")


def _recorded(model: Any, args: Any, named: Any) -> float:
    """The error of PyTorch's recorder alone: code may do something else where it is recorded."""
    torch._dynamo.reset()
    both = (model, torch.compile(model, backend="eager"))
    return float(error(*((torch.manual_seed(1), m(*args, **named))[1] for m in both)))


def _median(expected: Any, found: Any) -> float:
    """The median difference over the largest value, of the worst result."""
    worst = 0.0
    for a, b in zip(*map(pytree.tree_leaves, (expected, found)), strict=True):
        if isinstance(a, torch.Tensor) and a.is_floating_point() and a.numel():
            scale = a.abs().max().item() or 1.0
            worst = max(worst, (a.double() - b.double()).abs().median().item() / scale)
    return worst


def _times(eager: Callable[[], Any], ours: Callable[[], Any]) -> Row:
    """Milliseconds of processor time, the least of batches of calls in turns: its clock may tick
    in steps of a few milliseconds."""
    times: tuple[list[float], list[float]] = ([], [])
    begun = time.perf_counter()
    while len(times[0]) < 3 or (len(times[0]) < 9 and time.perf_counter() - begun < 4):
        for call, found in zip((eager, ours), times, strict=True):
            call()
            found.append(_batch_s(call))
    return {"eager_ms": 1e3 * min(times[0]), "ms": 1e3 * min(times[1])}


def _batch_s(call: Callable[[], Any]) -> float:
    """Processor seconds of a call, by as many as take some time."""
    calls, start = 0, time.process_time()
    while time.process_time() - start < BATCH_S:
        call()
        calls += 1
    return (time.process_time() - start) / calls


def _line(problem: BaseException) -> str:
    return f"{type(problem).__name__}: {' '.join(str(problem).split())[:300]}"


# --------------------------------------------------------------------------------------- processes


def row_of(package: str, name: str, args: argparse.Namespace) -> Row:
    """A model's row, from a fork of this process."""
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe(duplex=False)

    how = "operators" if args.operators else "explain" if args.explain else ""

    def work() -> None:
        log = Path(args.rows + ".log").open("a")  # noqa: SIM115 (to the process's end)
        sys.stdout = sys.stderr = log
        most, seconds = int(args.memory * 2**30), math.ceil(args.limit)
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
        try:
            there.send(outcome(package, name, how))
        except MemoryError:
            there.send({"fails": f"more than {args.memory:g} GiB"})
        except Exception as problem:
            there.send({"fails": _line(problem)})

    process = context.Process(target=work)
    begun = time.monotonic()
    process.start()
    there.close()
    row: Row = {"package": package, "model": name}
    try:
        ready = here.poll(WAITS * args.limit)
        row |= here.recv() if ready else {"fails": f"no result in {WAITS * args.limit:g} s"}
    except EOFError:
        process.join()
        late = process.exitcode == -signal.SIGXCPU
        limit = f"no result in {args.limit:g} s of processor time"
        row["fails"] = limit if late else f"dies: exit {process.exitcode}"
    process.kill()
    process.join()
    return row | {"took_s": round(time.monotonic() - begun, 1)}


# ------------------------------------------------------------------------------------------ tables


def said(row: Row) -> str:
    """A row as a line."""
    head = f"{row['package']:12} {row['model']:34}"
    for word in ("not_made", "fails"):
        if word in row:
            return f"{head} {word.replace('_', ' ')}: {row[word]}"
    parts = []
    if "error" in row:
        ratio = row["ms"] / row["eager_ms"] if row["eager_ms"] else 0
        parts.append(
            f"error {row['error']:.0e}{_excuse(row)}, first {row['first_s']:.1f} s, "
            f"{ratio:.2f} x eager"
        )
    if row.get("others"):
        parts.append(f"{row['others']} of {row['ours'] + row['others']} in PyTorch:")
        parts += [f"{count} x {why}" for why, count in row["reasons"].items()]
    elif row.get("told"):
        parts += row["told"]
    return "; ".join([f"{head} {parts[0] if parts else 'whole'}", *parts[1:]])


def _excuse(row: Row) -> str:
    again = row["eager_again"]
    return f" (eager itself {again:.0e})" if again > LARGEST else ""


def wrong(row: Row) -> bool:
    """Whether a row's error is more than it may be, and than eager's own."""
    return bool(row.get("error", 0) > max(LARGEST, row.get("eager_again", 0)))


def whole(row: Row) -> bool:
    return not (row.get("others") or row.get("told"))


def table(rows: Sequence[Row]) -> str:
    """By package, and what PyTorch runs, the most frequent first."""
    head = "| package | tried | made | run | whole | graphs | whole graphs | worst error "
    lines = [head + "| median | time over eager's | slower |", "| --- " * 11 + "|"]
    for package in sorted({r["package"] for r in rows}):
        lines.append(_package_line(package, [r for r in rows if r["package"] == package]))
    lines.append(_package_line("all", rows))
    models: collections.Counter[str] = collections.Counter()
    for row in rows:
        models.update({why[:150] for why in row.get("reasons", ())})
    lines += ["", *(f"{count:4} models: {why}" for why, count in models.most_common())]
    return "\n".join(lines)


def _package_line(name: str, rows: Sequence[Row]) -> str:
    made = [r for r in rows if "not_made" not in r]
    ran = [r for r in made if "fails" not in r]
    graphs = sum(r.get("graphs", 0) for r in ran)
    several = sum(r.get("whole_graphs", r.get("graphs", 0)) for r in ran)
    errors = [r["error"] for r in ran if "error" in r and r["eager_again"] <= LARGEST] or [0.0]
    ratios = [r["ms"] / r["eager_ms"] for r in ran if r.get("eager_ms")] or [1.0]
    cells = [
        name, len(rows), len(made), len(ran), sum(map(whole, ran)), graphs, several,
        f"{max(errors):.0e}", f"{statistics.median(errors):.0e}",
        f"{statistics.geometric_mean(ratios):.2f}", sum(r > 1 for r in ratios),
    ]  # fmt: skip
    return "| " + " | ".join(map(str, cells)) + " |"


# ----------------------------------------------------------------------------------------- command


def listed(packages: Sequence[str]) -> list[tuple[str, str]]:
    """Package and name of every model."""
    found: list[tuple[str, str]] = []
    for package in packages:
        names = getattr(tiny_models, f"{package}_names")()
        found += [(package, name) for name in names]
    return found


def _warm() -> None:
    """Load what every fork needs."""
    from autotune.torch import explain

    torch.set_num_threads(1)
    explain(torch.nn.Linear(4, 4), torch.zeros(2, 4))
    torch._dynamo.reset()


def kept(path: str) -> list[Row]:
    """The last row of each model in a file."""
    if not Path(path).exists():
        return []
    rows = [json.loads(line) for line in Path(path).read_text().splitlines()]
    return list({(r["package"], r["model"]): r for r in rows}.values())


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("packages", nargs="*", default=list(tiny_models.MAKERS))
    parser.add_argument("--names", default="", help="models whose names are these")
    parser.add_argument("--rows", required=True, help="a file of rows, a line of JSON each")
    parser.add_argument("--explain", action="store_true", help="compile nothing")
    parser.add_argument("--operators", action="store_true", help="record nothing either")
    parser.add_argument("--limit", type=float, default=120, help="processor seconds of a model")
    parser.add_argument("--memory", type=float, default=6, help="GiB of a model")
    parser.add_argument("--within", type=float, default=float("inf"), help="seconds of the run")
    parser.add_argument("--again", action="store_true", help="those that are known, too")
    parser.add_argument("--table", action="store_true", help="print the rows' table alone")
    args = parser.parse_args()
    if args.table:
        print(table(kept(args.rows)))
        return 0
    known = set() if args.again else {(r["package"], r["model"]) for r in kept(args.rows)}
    chosen = set(args.names.split(",")) if args.names else None
    _warm()
    begun = time.monotonic()
    for package, name in listed(args.packages):
        if (package, name) in known or (chosen is not None and name not in chosen):
            continue
        if time.monotonic() - begun > args.within:
            print("more models are left")
            break
        row = row_of(package, name, args)
        print(said(row), flush=True)
        with Path(args.rows).open("a") as file:
            file.write(json.dumps(row) + "\n")
    return any("fails" in r or wrong(r) for r in kept(args.rows))


if __name__ == "__main__":
    sys.exit(main())
