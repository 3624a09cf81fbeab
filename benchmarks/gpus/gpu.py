"""Every figure that needs an NVIDIA GPU, beside PyTorch (cuDNN, cuBLAS) in the same run.

    python benchmarks/gpus/gpu.py [--target sm_90a] [--trials 70] [--minutes 9] [--log gpu.db]
                             [--only PART ...]

Needs a GPU with its driver, the extra [cuda], and a CUDA build of PyTorch (torchvision and
transformers for whole models). Parts, in this order: first (defaults of every rule run right, and
each algorithm's default of a bfloat16 product, untuned), matmuls (bfloat16), bert (its matrix
products with bias and GELU), rows (softmax and layer norm against copy bandwidth), convolutions
(float32 of resnet18, batch 1 and 16, TF32 off), board (tuned through `rpc_server serve`, compiled
from the log), resnet18 and bert_base (whole networks against torch.compile), correct (random
configs of every rule). A figure is printed as soon as it is there. `--minutes` ends the tuning of
every part in time: the next call continues where the log ends. A part that fails, or lacks a
package, says so and the next one runs. Status 1 where a goal is missed, 2 where there is no GPU.

A GPU without a network needs what pip installs as wheels: `python benchmarks/gpus/gpu_kit.py`.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import statistics
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np

import autotune
from autotune.compiler.choose import candidates
from autotune.compiler.driver import open_log
from autotune.errors import AutotuneError
from autotune.frontend.zoo.base import Network
from autotune.measure.devices import open_device
from autotune.measure.devices.cuda import locked_clocks
from autotune.measure.runners.local import LocalRunner
from autotune.measure.types import MeasureRequest, MeasureResult, Status
from autotune.target import Target, load_target
from benchmarks.gpus.gpu_checks import TIMING, correct, first, goal, reachable, saved, tasks_of

ROUNDS = 3
RUNS = 50
"""Of a whole network."""
LEAST_S = 5.0
"""Tuning that would take less is left out."""
PRODUCTS = (4096, 8192)
"""Sides of square matrices."""
ROWS = (65536, 1024)
CONVOLUTIONS = (
    (224, 3, 64, 7, 2), (56, 64, 64, 3, 1), (56, 64, 128, 3, 2), (56, 64, 128, 1, 2),
    (28, 128, 128, 3, 1), (28, 128, 256, 3, 2), (28, 128, 256, 1, 2), (14, 256, 256, 3, 1),
    (14, 256, 512, 3, 2), (14, 256, 512, 1, 2), (7, 512, 512, 3, 1),
)  # fmt: skip
"""Of resnet18: image size, channels in and out, kernel, stride."""
BOARD_TRIALS = 40
BERT = ((128, 768, 768), (128, 768, 3072), (128, 3072, 768), (4096, 768, 3072), (4096, 3072, 768))
"""Rows, depth, columns: one sequence of 128 and 32 of them."""


class MeasuredError(AutotuneError):
    """What was chosen cannot be timed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What a part works with."""

    target: Target
    trials: int
    log: str
    torch: Any
    until_s: float = math.inf
    """When tuning ends, by `time.monotonic`."""

    def left_s(self) -> float | None:
        """Seconds for more tuning; None: no end."""
        return None if math.isinf(self.until_s) else max(0.0, self.until_s - time.monotonic())

    def bfloat16(self) -> Target:
        return self.target.with_precision("bf16")


def tuned_s(model: str, target: Target, setting: Setting) -> float:
    """Seconds of the model's kernels, the best of the log, after tuning them."""
    tune(model, target, setting, setting.trials * len(tasks_of(model, target)))
    with open_log(setting.log) as log, LocalRunner(target) as runner:
        tasks = tasks_of(model, target, log)
        chosen = {task: next(candidates(task, target, log)) for task in tasks}
        if any(best.source != "record" for best in chosen.values()):
            print(f"{Path(model).stem}: not tuned", flush=True)
        requests = tuple(
            MeasureRequest(task=task, schedule=best.schedule, target=target, timing=TIMING)
            for task, best in chosen.items()
        )
        rounds = [total_s(runner.measure(requests), tuple(tasks.values())) for _ in range(ROUNDS)]
    return min(rounds)


def tune(model: str, target: Target, setting: Setting, trials: int) -> None:
    """Add to the log until it has so many trials or time is up."""
    left_s = setting.left_s()
    if left_s is None or left_s > LEAST_S:
        autotune.tune(model, target=target, log=setting.log, trials=trials, time_s=left_s)


def total_s(results: Sequence[MeasureResult], weights: Sequence[int]) -> float:
    for result in results:
        if result.status != Status.OK:
            raise MeasuredError(f"{result.status}: {result.error}")
    return sum(w * result.median_s for w, result in zip(weights, results, strict=True))


def torch_s(torch: Any, call: Callable[[], Any], calls: int = 50, graph: bool = True) -> float:
    """Seconds of a call, many back to back, the best of some rounds. As a `graph`, short ones do
    not wait for the host (ours do not either); what has graphs of its own is called as it is."""
    for _ in range(10):
        call()
    torch.cuda.synchronize()

    def many() -> None:
        for _ in range(calls):
            call()

    if graph:
        captured = torch.cuda.CUDAGraph()
        with torch.cuda.graph(captured):
            many()
        many = captured.replay
    best = float("inf")
    for _ in range(1 + ROUNDS):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        many()
        end.record()
        torch.cuda.synchronize()
        best = min(best, start.elapsed_time(end) * 1e-3 / calls)
    return best


def row(name: str, ours_s: float, theirs_s: float) -> float:
    print(
        f"{name:44} {ours_s * 1e6:10.1f} us {theirs_s * 1e6:10.1f} us {theirs_s / ours_s:6.2f}x",
        flush=True,
    )
    return theirs_s / ours_s


# ------------------------------------------------------------------------------------------- parts


def convolution(name: str, batch: int, layer: Sequence[int], folder: str) -> str:
    """A model of one layer, channels last at both ends as inside of a network: cuDNN is given the
    order that it likes best, so neither side has to turn anything."""
    size, channels, filters, kernel, stride = layer
    net, out = Network(name), -(-size // stride)
    x = net.input("x", np.float32, (batch, size, size, channels))
    w = net.weights((filters, channels, kernel, kernel), fan_in=channels * kernel**2)
    x = net.op("Transpose", x, perm=[0, 3, 1, 2])
    y = net.op("Conv", x, w, strides=[stride] * 2, pads=[kernel // 2] * 4)
    y = net.op("Transpose", y, perm=[0, 2, 3, 1])
    return saved(net, y, (batch, out, out, filters), folder)


def convolutions(setting: Setting) -> bool:
    torch, met = setting.torch, True
    torch.backends.cudnn.benchmark, torch.backends.cudnn.allow_tf32 = True, False
    for batch in (1, 16):
        faster = 0
        for layer in CONVOLUTIONS:
            size, channels, filters, kernel, stride = layer
            name = f"conv{kernel}x{kernel}s{stride}_{size}x{channels}x{filters}_b{batch}"
            with tempfile.TemporaryDirectory() as folder:
                path = convolution(name, batch, layer, folder)
                ours = tuned_s(path, setting.target, setting)
            data = torch.randn(batch, channels, size, size, device="cuda")
            theirs = torch.nn.Conv2d(channels, filters, kernel, stride, kernel // 2, bias=False)
            best = float("inf")
            for memory in (torch.contiguous_format, torch.channels_last):
                given = data.contiguous(memory_format=memory)
                placed = theirs.cuda().to(memory_format=memory)
                with torch.no_grad():
                    best = min(best, torch_s(torch, lambda p=placed, g=given: p(g)))
            faster += row(name, ours, best) > 1
        wanted = 9 * len(CONVOLUTIONS) / 11
        said = (
            f"batch {batch}: faster than cuDNN on {faster} of {len(CONVOLUTIONS)}, wanted 9 of 11"
        )
        met &= goal(said, faster >= wanted)
    return met


def product(setting: Setting, m: int, k: int, n: int, gelu: bool) -> float:
    """Speed-up of a bfloat16 product over cuBLAS. Its result is bfloat16, ours is float32. With a
    bias and GELU, over the faster of single kernels and cuBLAS's own, whose GELU is by tanh."""
    torch, name = setting.torch, f"matmul_{m}x{k}x{n}{'_gelu' if gelu else ''}"
    net = Network(name)
    x = net.input("x", np.float32, (m, k))
    y = net.dense(x, k, n) if gelu else net.op("MatMul", x, net.weights((k, n), fan_in=k))
    if gelu:
        y = net.op("Mul", y, net.op("Sigmoid", net.op("Mul", y, net.constant(1.702))))
    with tempfile.TemporaryDirectory() as folder:
        ours = tuned_s(saved(net, y, (m, n), folder), setting.bfloat16(), setting)
    a, b = (torch.randn(*s, device="cuda", dtype=torch.bfloat16) for s in ((m, k), (k, n)))
    bias = torch.randn(n, device="cuda", dtype=torch.bfloat16)

    def singly() -> Any:
        y = torch.addmm(bias, a, b)
        return y * torch.sigmoid(1.702 * y)

    def fused() -> Any:
        return torch._addmm_activation(bias, a, b, use_gelu=True)

    calls = (singly, fused) if gelu else (lambda: a @ b,)
    return row(name, ours, min(torch_s(torch, call) for call in calls))


def matmuls(setting: Setting) -> bool:
    wanted = 0.9 if "wgmma" in open_device(setting.target).describe().features else 0.6
    shares = [product(setting, n, n, n, gelu=False) for n in PRODUCTS]
    return goal(f"{min(shares):.0%} of cuBLAS, wanted {wanted:.0%}", min(shares) >= wanted)


def bert(setting: Setting) -> bool:
    speedups = [product(setting, m, k, n, gelu=True) for m, k, n in BERT]
    mean = statistics.geometric_mean(speedups)
    return goal(f"{mean:.2f}x cuBLAS on average, wanted 1.00x", mean >= 1)


def rows(setting: Setting) -> bool:
    """Softmax and layer norm of 256 MB, several times the cache: read once, written once; against
    the faster of our copy and PyTorch's."""
    torch, shape, shares = setting.torch, ROWS, []
    with LocalRunner(setting.target) as runner:
        copy = runner.profile().levels[-1].copy_bytes_per_s
    if torch is not None:
        to, source = (torch.empty(shape, device="cuda") for _ in range(2))
        copy = max(copy, 4 * shape[0] * shape[1] / torch_s(torch, lambda: to.copy_(source)))
    for op in ("Softmax", "LayerNormalization"):
        net = Network(op.lower())
        x = net.input("x", np.float32, shape)
        extra = [net.vector(shape[1], 1.0), net.vector(shape[1])] if op != "Softmax" else []
        y = net.op(op, x, *extra, axis=-1)
        with tempfile.TemporaryDirectory() as folder:
            ours = tuned_s(saved(net, y, shape, folder), setting.target, setting)
        shares.append(row(net.name, ours, 4 * shape[0] * shape[1] / copy))
    return goal(f"{min(shares):.0%} of copying, wanted 90%", min(shares) >= 0.9)


def resnet18(setting: Setting) -> bool:
    import torchvision

    image = setting.torch.randn(1, 3, 224, 224, device="cuda")
    return whole(setting, "resnet18", torchvision.models.resnet18(), image)


def bert_base(setting: Setting) -> bool:
    import transformers

    class Words(setting.torch.nn.Module):  # type: ignore[misc, name-defined]
        """Its first result: an exporter takes no arguments by name, and no others."""

        def __init__(self) -> None:
            super().__init__()
            self.bert = transformers.BertModel(transformers.BertConfig())

        def forward(self, words: Any) -> Any:
            return self.bert(input_ids=words).last_hidden_state

    words = setting.torch.randint(0, 30000, (1, 128), device="cuda")
    return whole(setting, "bert_base", Words(), words)


def whole(setting: Setting, name: str, network: Any, data: Any) -> bool:
    """A network, its data on the device; inference in float32, TF32 off."""
    torch = setting.torch
    torch.backends.cudnn.benchmark = True
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    network = network.eval()
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        path, given = f"{folder}/{name}.onnx", data.cpu()
        want = network(given).numpy()
        torch.onnx.export(network, (given,), path, dynamo=False)
        tune(path, setting.target, setting, 1000)
        model = autotune.compile(path, target=setting.target, log=setting.log)
        (got,) = model.run(dict.fromkeys(model.inputs, given.numpy())).values()
        error = float(np.max(np.abs(got - want)) / np.max(np.abs(want)))
        ours = model.bench(RUNS).median_s
        compiled = torch.compile(network.cuda(), mode="max-autotune")
        speedup = row(name, ours, torch_s(torch, lambda: compiled(data), graph=False))
    right = goal(f"{name} within {error:.0e} of PyTorch, wanted 1e-3", error <= 1e-3)
    return goal(f"{speedup:.2f}x torch.compile, wanted 1.00x", speedup >= 1) and right


def board(setting: Setting) -> bool:
    """A model tuned on a board over the network, compiled here from the log alone."""
    command = [sys.executable, "-m", "rpc_server", "serve", "--listen", "127.0.0.1:0"]
    served = subprocess.Popen(
        [*command, "--target", setting.target.name], stdout=subprocess.PIPE, text=True
    )
    assert served.stdout is not None
    try:
        said = []
        for line in served.stdout:
            said.append(line.strip())
            if line.startswith("listening on "):
                break
        else:
            return goal(f"the board did not start: {' '.join(said)}", False)
        place = said[-1].removeprefix("listening on ")
        with tempfile.TemporaryDirectory() as folder:
            log = f"{folder}/board.db"
            autotune.tune("zoo:tiny", target=setting.target, log=log, trials=BOARD_TRIALS,
                          device=f"rpc://{place}")  # fmt: skip
            model = autotune.compile("zoo:tiny", target=setting.target, log=log)
        return goal(
            "kernels come from records of the board",
            {kernel.source for kernel in model.image.kernels} == {"record"},
        )
    finally:
        served.terminate()
        served.wait()
        served.stdout.close()


PARTS: dict[str, Callable[[Setting], bool]] = {
    "first": lambda setting: first(setting.target),
    **{p.__name__: p for p in (matmuls, bert, rows, convolutions, board, resnet18, bert_base)},
    "correct": lambda setting: correct(setting.target, setting.left_s()),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--target", default="sm_90a")
    parser.add_argument("--trials", type=int, default=70, help="per kernel")
    parser.add_argument("--minutes", type=float, default=math.inf, help="of tuning, in all")
    parser.add_argument("--log", default="gpu.db")
    parser.add_argument("--lock-clocks", action="store_true", help="while this runs; needs root")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    options = parser.parse_args()
    target = load_target(options.target)
    try:
        print(open_device(target).describe())
    except AutotuneError as error:
        print(f"no figures: {error}", file=sys.stderr)
        return 2
    try:
        import torch
    except ImportError as error:  # parts without a peer run all the same
        torch = None
        print(f"no PyTorch: {error}", file=sys.stderr)
    with contextlib.ExitStack() as stack:
        if options.lock_clocks and (why := stack.enter_context(locked_clocks(target))):
            print(f"clocks are not locked: {why}", file=sys.stderr)
        stack.enter_context(reachable(target))
        return run(options, target, torch)


def run(options: argparse.Namespace, target: Target, torch: Any) -> int:
    """Every part that was asked for. Each may tune for its share of the time that is left."""
    end_s = time.monotonic() + 60 * options.minutes
    met = True
    for number, name in enumerate(options.only):
        share_s = (end_s - time.monotonic()) / (len(options.only) - number)
        setting = Setting(
            target=target, trials=options.trials, log=options.log, torch=torch,
            until_s=time.monotonic() + share_s,
        )  # fmt: skip
        print(f"== {name}", flush=True)
        try:
            met &= PARTS[name](setting)
        except Exception as error:  # the boundary of a part: the next one runs
            traceback.print_exc(limit=-3)
            met = goal(f"{name}: {type(error).__name__}: {error}", False)
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
