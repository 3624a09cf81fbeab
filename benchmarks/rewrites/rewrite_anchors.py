"""Gains that TASO, Tensat, PET and EinNet report (on GPUs), each beside what is possible here.

    python benchmarks/rewrites/rewrite_anchors.py [NAME ...] [--folder build/rewrites]

A line for each: how much less work the rewrites found here are, or how much the published ones can
save on this core at most. Those merge operators that share an input, or give groups and batches
another form: no multiply-add goes, so what they save is reading a shared input again, from the
cache that holds it, and the distance of grouped convolutions from twice their work at the core's
peak (two groups as one multiply zeros); there are no launches to save. `at most` is the predicted
time over itself less both. Transposed convolutions are phases from the import on: what these leave
out, at peak, is a gain in both ways of `rewrite_models.py`, and counted here, against work on
zeros. No kernel is run.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import helper

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from autotune.frontend import load_model
from autotune.graph.ir import Graph
from autotune.graph.pipeline import CLEAN, optimize
from autotune.machine import Machine
from autotune.machine.cpu import core_seconds
from autotune.ops import OPS
from autotune.request import CompileRequest
from autotune.rewrite.cost import Costs
from autotune.rewrite.files import shipped
from autotune.rewrite.search import search
from autotune.tasks.flops import task_flops
from autotune.types import Task
from benchmarks.rewrite_models import MODELS, write

REPORTED: tuple[tuple[str, str, float], ...] = (
    ("nasrnn", "TASO", 1.45), ("nasrnn", "Tensat", 1.69), ("squeezenet", "TASO", 1.067),
    ("squeezenet", "Tensat", 1.245), ("inception_v3", "TASO", 1.063),
    ("inception_v3", "Tensat", 1.10), ("bert", "TASO", 1.085), ("bert", "Tensat", 1.092),
    ("vgg19", "TASO", 1.089), ("vgg19", "Tensat", 1.089), ("resnext50", "TASO", 1.055),
    ("resnext50", "Tensat", 1.088), ("nasnet_a", "TASO", 1.019), ("nasnet_a", "Tensat", 1.073),
    ("resnet18", "PET", 1.2), ("csrnet", "EinNet", 1.5),
    ("dcgan", "EinNet", 1.5), ("infogan", "EinNet", 1.5), ("fsrcnn", "EinNet", 1.5),
    ("gcn", "EinNet", 1.5), ("resnet18", "EinNet", 1.5), ("longformer", "EinNet", 1.5),
)  # fmt: skip
"""(model, by whom, times as fast). EinNet's is its mean over these models: single ones are not
known here; nor is the model on which PET gains most, 2.5 times."""
WORTH = 1.02
"""Times as fast from which a rewrite is one that gains."""
SEARCH_S = 20.0
LEAST_MERGED = 2
"""Times the multiply-adds, at least, of joined groups: zeros between them are multiplied."""


def operations(tasks: Counter[Task]) -> float:
    return float(sum(n * task_flops(task) for task, n in tasks.items()))


def rereading_s(graph: Graph, machine: Machine) -> float:
    """Seconds to read inputs that several contractions read, once less each: from the cache that
    holds them twice, since others lie there too, else from memory."""
    readers: Counter[str] = Counter()
    for node in graph.nodes:
        if OPS.get(node.op).kind == "contraction":
            readers.update({i for i in node.inputs if i not in graph.constants})
    *caches, memory = machine.profile.levels
    total_s = 0.0
    for value, count in readers.items():
        moved = float(graph.types[value].nbytes)
        level = next((c for c in caches if 2 * moved <= c.size_bytes), memory)
        total_s += (count - 1) * moved / level.load_bytes_per_s
    return total_s


def phases_flops(path: Path) -> float:
    """Operations on zeros between places, which phases of transposed convolutions leave out. Their
    sizes are those of a run: exporters compute some of them from shapes."""
    model = onnx.load(path)
    nodes = [n for n in model.graph.node if n.op_type == "ConvTranspose"]
    outputs = [n.output[0] for n in nodes]
    there = {o.name for o in model.graph.output}
    model.graph.output.extend(
        helper.make_empty_tensor_value_info(name) for name in outputs if name not in there
    )
    session = onnxruntime.InferenceSession(model.SerializeToString())
    feeds = {i.name: np.zeros(i.shape, np.float32) for i in session.get_inputs()} if nodes else {}
    made = session.run(outputs, feeds) if nodes else []
    weights = {i.name: tuple(i.dims) for i in model.graph.initializer}
    total = 0.0
    for node, out in zip(nodes, made, strict=True):
        strides = next((a.ints for a in node.attribute if a.name == "strides"), (1, 1))
        ins, _, *window = weights[node.input[1]]
        total += 2 * out.size * ins * math.prod(window) * (1 - 1 / math.prod(strides))
    return total


def line(path: Path) -> tuple[float, float, str]:
    """(times as fast by rewrites, at most by published ones, what there is to say)."""
    costs = Costs(CompileRequest(path).wanted_target())
    graph = optimize(load_model(path), CLEAN)
    before = costs.tasks(graph)
    found = search(graph, shipped(), costs, SEARCH_S)
    after = costs.tasks(found.graph)
    was_s, is_s = (
        sum(n * costs.predicted(t) for t, n in tasks.items()) for tasks in (before, after)
    )
    less = operations(before) - operations(after)
    read_s = rereading_s(graph, costs.machine)
    idle_s = 0.0
    for task, n in before.items():
        if any(dict(node.attrs).get("groups", 1) != 1 for node in task.nodes):
            at_peak_s = core_seconds(costs.machine, float(task_flops(task)), 0.0)
            idle_s += n * max(costs.predicted(task) - LEAST_MERGED * at_peak_s, 0.0)
    most = was_s / (was_s - min(read_s + idle_s, 0.9 * was_s))
    phases_s = core_seconds(costs.machine, phases_flops(path), 0.0)
    said = [f"{was_s * 1e3:.2f} ms predicted"]
    if found.steps:
        by = ", ".join(dict.fromkeys(s.rewrite for s in found.steps))
        peak_s = core_seconds(costs.machine, abs(less), 0.0)
        said.append(
            f"{is_s * 1e3:.2f} by {by} ({less / 1e9:.2f} GFLOP less: {peak_s * 1e3:.2f} at peak)"
        )
    if phases_s:
        said.append(f"phases leave out {phases_s * 1e3:.2f} ms at peak")
    said.append(f"shared inputs {read_s * 1e6:.0f} us, groups below peak {idle_s * 1e6:.0f} us")
    gain = (was_s + phases_s) / is_s
    return gain, most, "; ".join(said)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(MODELS)}")
    parser.add_argument("--folder", type=Path, default=Path("build/rewrites"))
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    print("| model | reported | here | why |\n| --- | --- | --- | --- |")
    wanted = [r for r in REPORTED if not options.names or r[0] in options.names]
    for name in dict.fromkeys(model for model, _, _ in wanted):
        path = options.folder / f"{name}.onnx"
        if not path.exists():
            write(name, path)
        gain, most, why = line(path)
        reports = [(who, times) for model, who, times in wanted if model == name]
        if gain > WORTH:
            verdict = f"{gain:.2f}x, predicted"
        elif most < min(times for _, times in reports):
            verdict = f"impossible: {most:.3f}x at most"
        else:
            verdict = f"not reproduced: {most:.3f}x at most"
        reported = ", ".join(f"{who} {times:.2f}x" for who, times in reports)
        print(f"| {name} | {reported} | {verdict} | {why} |", flush=True)


if __name__ == "__main__":
    main()
