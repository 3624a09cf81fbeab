"""Captured graphs of PyTorch models, compiled: right, without fallbacks, and how fast.

    python benchmarks/pytorch/captured_graphs.py SAMPLE|LIST ... [--backends autotune,inductor]
        [--mode default] [--threads 1] [--rounds 9] [--seconds 20] [--part I/N] [--within S]
        [--busy] [--rows FILE] [--table]

A SAMPLE is a folder of the GraphNet data set, a LIST a text file that names such folders, and
`written` stands for the networks of written_images.py and written_sequences.py. Each runs in a
process of its own: the backends compile it (Inductor with freezing and in `--mode` max-autotune
if not told otherwise, nothing cached), and are timed in turns with eager. A line each; rows go to
`--rows`, one JSON a line, where what is there already is kept, so that a run can be done in parts
(`--within`: seconds after which no further sample begins). `--table` prints what the rows come to,
by family and the ten slowest. Times are medians; with `--busy`, beside other load, the processor
time of the fastest runs. Errors are the largest difference from eager over eager's largest value.
"""

from __future__ import annotations

import argparse
import json
import logging
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.utils import _pytree as pytree

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

Row = dict[str, Any]
OURS, PEER = "autotune", "inductor"
BACKENDS = f"{OURS},{PEER}"


# ------------------------------------------------------------------------------------- one sample


def measured(folder: Path, args: argparse.Namespace) -> Row:
    """What became of a sample, whose timing begins no further round after `args.seconds`."""
    from benchmarks.pytorch.captured_samples import load

    module, arguments = load(folder)
    row: Row = {"sample": str(folder), "threads": torch.get_num_threads()}
    try:
        expected = module(*arguments)
    except Exception as problem:
        return row | {"eager": _line(problem)}
    calls: dict[str, Callable[..., Any]] = {"eager": module}
    for backend in args.backends.split(","):
        print(f"AT {backend}", flush=True)
        first, call = _calls(backend, module, args.mode)
        row[backend] = _first(first, arguments, expected)
        if "fails" not in row[backend]:
            calls[backend] = call
    clock = time.process_time if args.busy else time.perf_counter
    for name, times in _timed(calls, arguments, args, clock).items():
        found = min(times) if args.busy else statistics.median(times)
        (row if name == "eager" else row[name])[f"{'eager_' * (name == 'eager')}ms"] = 1e3 * found
    return row


def _first(call: Callable[..., Any], arguments: Any, expected: Any) -> Row:
    """Seconds to the first result, its error, graphs; what is not ours. Nothing is reset: that
    would have the backends before compiled again, unseen."""
    torch._dynamo.utils.counters.clear()
    told = _Told()
    start = time.perf_counter()
    try:
        with told:
            found = call(*arguments)
    except Exception as problem:
        return {"fails": _line(problem)}
    first_s = time.perf_counter() - start
    counted = torch._dynamo.utils.counters
    return {
        "first_s": first_s, "error": error(expected, found),
        "graphs": counted["stats"]["unique_graphs"],
        "breaks": sum(counted["graph_break"].values()), "told": told.lines,
    }  # fmt: skip


def _calls(backend: str, module: Any, mode: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """What is called first, and from then on."""
    if backend != PEER:
        ours: Callable[..., Any] = torch.compile(module, backend=backend)
        return ours, ours
    import torch._inductor.config as inductor

    peer: Callable[..., Any] = torch.compile(module, mode=mode)

    def frozen(*arguments: Any) -> Any:
        # PyTorch's setting, which other backends would see too.
        with inductor.patch(freezing=True, force_disable_caches=True):
            return peer(*arguments)

    return frozen, peer


class _Told:
    """What the backend says while it compiles."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._handler = logging.Handler()
        self._handler.emit = lambda r: self.lines.append(r.getMessage())  # type: ignore[method-assign]
        self._caught = warnings.catch_warnings(record=True)

    def __enter__(self) -> None:
        self._warned = self._caught.__enter__()
        logging.getLogger("autotune.torch").addHandler(self._handler)

    def __exit__(self, *_: object) -> None:
        logging.getLogger("autotune.torch").removeHandler(self._handler)
        self._caught.__exit__(None, None, None)
        self.lines += [str(w.message) for w in self._warned or () if "defect" in str(w.message)]


def _timed(
    calls: dict[str, Callable[..., Any]],
    arguments: Any,
    args: argparse.Namespace,
    clock: Callable[[], float],
) -> dict[str, list[float]]:
    """Seconds of each, called in turns."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    begun = time.perf_counter()
    for turn in range(args.rounds):
        for name, call in calls.items():
            call(*arguments)
            start = clock()
            call(*arguments)
            times[name].append(clock() - start)
        if turn >= 2 and time.perf_counter() - begun > args.seconds:
            break
    return times


def error(expected: Any, found: Any) -> float:
    """The largest difference over the largest value, of the worst result; infinite where forms
    differ."""
    one, other = pytree.tree_leaves(expected), pytree.tree_leaves(found)
    pairs = [(a, b) for a, b in zip(one, other, strict=True) if isinstance(a, torch.Tensor)]
    return max((_distance(a, b) for a, b in pairs), default=0.0)


def _distance(a: torch.Tensor, b: torch.Tensor) -> float:
    if a.shape != b.shape or a.dtype != b.dtype:
        return float("inf")
    if a.numel() == 0:
        return 0.0
    wide = torch.complex128 if a.is_complex() else torch.float64
    x, y = a.to(wide), b.to(wide)
    same = (x == y) | (x.isnan() & y.isnan())
    finite = x[x.isfinite()].abs()
    scale = finite.max().item() if finite.numel() else 1.0
    return float(torch.where(same, 0.0, (x - y).abs()).max().item() / (scale or 1.0))


def _line(problem: BaseException) -> str:
    return f"{type(problem).__name__}: {' '.join(str(problem).split())[:300]}"


# -------------------------------------------------------------------------------------- processes


def row_of(folder: Path, args: argparse.Namespace) -> Row:
    """A sample's row, from a process of its own."""
    options = ["--backends", args.backends, "--mode", args.mode, "--threads", str(args.threads)]
    options += ["--rounds", str(args.rounds), "--seconds", str(args.seconds)]
    options += ["--busy"] * args.busy
    command = [sys.executable, __file__, str(folder), "--child", *options]
    row: Row = {"sample": str(folder), "threads": args.threads}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=args.limit, check=False
        )
        last = (done.stderr.split("\n")[-2:] or [""])[0][:300]
        lines, why = done.stdout.splitlines(), f"dies: {last}"
    except subprocess.TimeoutExpired as late:
        lines = (late.stdout or b"").decode(errors="replace").splitlines()
        why = f"no result in {args.limit:g} s"
    for line in lines:
        if line.startswith("ROW "):
            found: Row = json.loads(line[4:])
            return found
    at = [line[3:] for line in lines if line.startswith("AT ")]
    return row | {(at or ["eager"])[-1]: {"fails": why} if at else why}


def said(row: Row) -> str:
    """A row as a line."""
    name = "/".join(Path(row["sample"]).parts[-2:])
    if isinstance(row.get("eager"), str):
        return f"{name:60} eager fails: {row['eager']}"
    parts = [f"{name:60} eager {row.get('eager_ms', 0):8.2f} ms"]
    for backend, found in row.items():
        if not isinstance(found, dict):
            continue
        if "fails" in found:
            parts.append(f"{backend} fails: {found['fails']}")
            continue
        line = f"{backend} {found.get('ms', 0):8.2f} ms, error {found['error']:.0e}"
        parts.append("; ".join([f"{line}, first {found['first_s']:.1f} s", *found["told"]]))
    return " | ".join(parts)


# ------------------------------------------------------------------------------------------ tables


def family(row: Row) -> str:
    """The part of the data set that a sample is of."""
    parts = Path(row["sample"]).parts
    return parts[parts.index("samples") + 1] if "samples" in parts else "/".join(parts[:-1])


def ratio(row: Row, peer: str) -> float | None:
    """Times as fast as a peer."""
    other = row.get("eager_ms") if peer == "eager" else row.get(peer, {}).get("ms")
    own = row.get(OURS, {}).get("ms")
    return other / own if other and own else None


def table(rows: Sequence[Row]) -> str:
    """By family, and the slowest beside each peer."""
    head = "| family | graphs | run | no fallback | worst error | over eager | over Inductor "
    lines = [head + "| least | compile time over Inductor's |", "| --- " * 9 + "|"]
    usable = [r for r in rows if not isinstance(r.get("eager"), str)]
    families = sorted({family(r) for r in usable})
    lines += [_family_line(name, [r for r in usable if family(r) == name]) for name in families]
    lines.append(_family_line("all", usable))
    worst = sorted((r for r in usable if ratio(r, PEER)), key=lambda r: ratio(r, PEER) or 0)[:10]
    lines += ["", "| slowest beside Inductor | ours, ms | Inductor | eager |", "| --- " * 4 + "|"]
    for r in worst:
        name = "/".join(Path(r["sample"]).parts[-2:])
        lines.append(
            f"| {name} | {r[OURS]['ms']:.2f} | {r[PEER]['ms']:.2f} | {r['eager_ms']:.2f} |"
        )
    return "\n".join(lines)


def _family_line(name: str, rows: Sequence[Row]) -> str:
    ran = [r[OURS] for r in rows if "ms" in r.get(OURS, {})]
    whole = sum(not f["told"] for f in ran)
    both = [found for r in rows if (found := ratio(r, PEER))]
    alone = [found for r in rows if (found := ratio(r, "eager"))]
    firsts = [
        r[OURS]["first_s"] / r[PEER]["first_s"]
        for r in rows
        if "first_s" in r.get(OURS, {}) and "first_s" in r.get(PEER, {})
    ]
    cells = [
        name, str(len(rows)), str(len(ran)), str(whole),
        f"{max((f['error'] for f in ran), default=0):.0e}",
        _mean(alone), f"{_mean(both)} of {len(both)}", f"{min(both):.2f}" if both else "-",
        f"{statistics.median(firsts):.2f}" if firsts else "-",
    ]  # fmt: skip
    return "| " + " | ".join(cells) + " |"


def _mean(ratios: Sequence[float]) -> str:
    return f"{statistics.geometric_mean(ratios):.2f}" if ratios else "-"


# ----------------------------------------------------------------------------------------- command


def run(folders: Sequence[Path], args: argparse.Namespace) -> None:
    """Rows of the samples that there is none of yet."""
    known = {(r["sample"], r["threads"]) for r in kept(args.rows)}
    begun = time.monotonic()
    for folder in folders:
        if (str(folder), args.threads) in known:
            continue
        if time.monotonic() - begun > args.within:
            print("more samples are left")
            return
        row = row_of(folder, args)
        print(said(row), flush=True)
        if args.rows:
            with Path(args.rows).open("a") as file:
                file.write(json.dumps(row) + "\n")


def kept(path: str | None) -> list[Row]:
    """The rows of a file."""
    if path is None or not Path(path).exists():
        return []
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("samples", nargs="*")
    parser.add_argument("--backends", default=BACKENDS)
    parser.add_argument("--mode", default="max-autotune", help="of Inductor")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=20, help="of timing a sample")
    parser.add_argument("--busy", action="store_true", help="processor time of the fastest runs")
    parser.add_argument("--limit", type=float, default=600, help="seconds of a sample")
    parser.add_argument("--within", type=float, default=float("inf"), help="seconds of the run")
    parser.add_argument("--part", default="1/1", help="the I-th of N parts of the samples")
    parser.add_argument("--rows", help="a file of rows, which is gone on with")
    parser.add_argument("--table", action="store_true", help="print the rows' table alone")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.table:
        print(table(kept(args.rows)))
        return 0
    from benchmarks.pytorch.captured_samples import listed

    folders = listed(args.samples)
    if args.child:
        torch.set_num_threads(args.threads)
        torch.set_grad_enabled(False)
        row = measured(folders[0], args)
        print("ROW " + json.dumps(row), flush=True)
        return 0
    part, parts = map(int, args.part.split("/"))
    run(folders[part - 1 :: parts], args)
    return 0


if __name__ == "__main__":
    sys.exit(main())
