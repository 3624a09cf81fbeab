"""A compiled model that serves: what a call costs, and requests from several threads at once.

In: models. Out: seconds of a call of a model of one tiny kernel, here and in ONNX Runtime, in
turns; then, for every model, requests per second of one client and of `--clients` of them, here
and in ONNX Runtime (a session of as many threads), in turns. Both take runs side by side.

Usage: python benchmarks/networks/serving.py MODEL.onnx ... [--clients 4] [--threads 1]
    [--seconds 2]
"""

from __future__ import annotations

import argparse
import statistics
import threading
import time
from collections.abc import Callable

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper

import autotune
from autotune.graph.feeds import random_feeds
from autotune.runtime.model import CompiledModel

CALLS = 3000
"""Of the tiny model in a turn."""
CALL_TURNS, TURNS = 15, 3
Call = Callable[[], object]


def one_node() -> bytes:
    """y = max(x, 0) of 16 floats: all of a run is the call."""
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 16]) for n in "xy")
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "one", [x], [y])
    opset = [helper.make_opsetid("", 17)]
    made: onnx.ModelProto = helper.make_model(graph, opset_imports=opset, ir_version=8)
    return made.SerializeToString()


def peer(model: str | bytes, threads: int) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def call_costs() -> dict[str, list[float]]:
    """Seconds of a call, one value per turn."""
    model, session = autotune.compile(one_node()), peer(one_node(), 1)
    feeds, out = {"x": np.ones((1, 16), np.float32)}, {"y": np.empty((1, 16), np.float32)}
    binding = session.io_binding()
    binding.bind_cpu_input("x", feeds["x"])
    binding.bind_output("y")
    calls: dict[str, Call] = {
        "run": lambda: model.run(feeds),
        "run with out=": lambda: model.run(feeds, out=out),
        "ONNX Runtime, run": lambda: session.run(None, feeds),
        "ONNX Runtime, IO binding": lambda: session.run_with_iobinding(binding),
    }
    found: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(CALL_TURNS):
        for name, call in calls.items():
            start = time.perf_counter()
            for _ in range(CALLS):
                call()
            found[name].append((time.perf_counter() - start) / CALLS)
    return found


def requests_per_s(call: Call, clients: int, seconds: float) -> float:
    """By that many threads, each of which asks again as soon as it has its answer."""
    counts, stop = [0] * clients, threading.Event()

    def client(number: int) -> None:
        while not stop.is_set():
            call()
            counts[number] += 1

    threads = [threading.Thread(target=client, args=(n,)) for n in range(clients)]
    start = time.perf_counter()
    for thread in threads:
        thread.start()
    stop.wait(seconds)
    stop.set()
    for thread in threads:
        thread.join()
    return sum(counts) / (time.perf_counter() - start)


def served(path: str, threads: int, clients: int, seconds: float) -> str:
    """A row of the table: medians of turns."""
    model: CompiledModel = autotune.compile(path, threads=threads)
    session, feeds = peer(path, threads), random_feeds(model.inputs, 0)
    calls: tuple[Call, ...] = (lambda: model.run(feeds), lambda: session.run(None, feeds))
    rates: dict[tuple[int, int], list[float]] = {}
    for _ in range(TURNS):
        for number, call in enumerate(calls):
            call()
            for many in (1, clients):
                rate = requests_per_s(call, many, seconds)
                rates.setdefault((number, many), []).append(rate)
    ours, ours_many, theirs, theirs_many = (statistics.median(r) for r in rates.values())
    cells = (
        path, f"{ours:.1f}", f"{ours_many:.1f}", f"{ours_many / ours:.2f}x",
        f"{theirs:.1f}", f"{theirs_many:.1f}", f"{ours_many / theirs_many:.2f}x",
    )  # fmt: skip
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("models", nargs="*")
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--threads", type=int, default=1, help="of a run")
    parser.add_argument("--seconds", type=float, default=2.0, help="of a turn")
    options = parser.parse_args()
    for name, seconds in call_costs().items():
        fastest, median = 1e6 * min(seconds), 1e6 * statistics.median(seconds)
        print(f"{name}: {fastest:.1f} us at best, {median:.1f} in the median")
    many = f"{options.clients} clients"
    print(f"| model | one client | {many} | more | ONNX Runtime: one | {many} | speed-up |")
    print("| --- " * 7 + "|")
    for path in options.models:
        print(served(path, options.threads, options.clients, options.seconds), flush=True)


if __name__ == "__main__":
    main()
