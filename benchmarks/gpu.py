"""Every figure that needs an NVIDIA GPU, beside PyTorch (cuDNN, cuBLAS) in the same run.

    python benchmarks/gpu.py [--target sm_90a] [--trials 70] [--log gpu.db] [--only PART ...]

Needs a GPU with its driver, the extra [cuda], and a CUDA build of PyTorch (torchvision and
transformers for whole models). Parts: correct (configs of every rule against the reference),
convolutions (float32 of resnet18, batch 1 and 16, TF32 off), matmuls (bfloat16), bert (its matrix
products with bias and GELU), rows (softmax and layer norm against copy bandwidth), models (whole
networks against torch.compile), board (tuned through `rpc_server serve`, compiled from the log).
Tuning continues where the log ends. Status 1 where a goal is missed, 2 where there is no GPU.
"""

from __future__ import annotations

import argparse
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx

import autotune
from autotune.compiler.choose import candidates
from autotune.compiler.driver import open_log
from autotune.errors import AutotuneError
from autotune.frontend import load_model
from autotune.frontend.zoo.base import Network
from autotune.graph.partition import partition
from autotune.graph.pipeline import optimize
from autotune.measure.devices import open_device
from autotune.measure.devices.nvml import open_nvml
from autotune.measure.runners.local import LocalRunner
from autotune.measure.types import MeasureRequest, MeasureResult, Status, Timing
from autotune.target import Target, load_target
from autotune.types import Task
from search_spaces.rules import RULES

TIMING = Timing(min_repeats=20, max_repeats=60, budget_s=0.6)
ROUNDS = 3
CONVOLUTIONS = (
    (224, 3, 64, 7, 2), (56, 64, 64, 3, 1), (56, 64, 128, 3, 2), (56, 64, 128, 1, 2),
    (28, 128, 128, 3, 1), (28, 128, 256, 3, 2), (28, 128, 256, 1, 2), (14, 256, 256, 3, 1),
    (14, 256, 512, 3, 2), (14, 256, 512, 1, 2), (7, 512, 512, 3, 1),
)  # fmt: skip
"""Of resnet18: image size, channels in and out, kernel, stride."""
BERT = ((128, 768, 768), (128, 768, 3072), (128, 3072, 768), (4096, 768, 3072), (4096, 3072, 768))
"""Rows, depth, columns: one sequence of 128 and 32 of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What a part works with."""

    target: Target
    trials: int
    log: str
    torch: Any

    def bfloat16(self) -> Target:
        return self.target.with_precision("bf16")


def saved(net: Network, value: str, shape: Sequence[int], folder: str) -> str:
    path = Path(folder) / f"{net.name}.onnx"
    onnx.save(net.finish({"y": (value, shape)}), path)
    return str(path)


def tuned_s(model: str, target: Target, setting: Setting) -> float:
    """Seconds of the model's kernels, the best of the log, after tuning them."""
    tasks = partition(optimize(load_model(model)), attention=False).weights()
    autotune.tune(model, target=target, log=setting.log, trials=setting.trials * len(tasks))
    with open_log(setting.log) as log, LocalRunner(target) as runner:
        requests = tuple(
            MeasureRequest(
                task=task, schedule=next(candidates(task, target, log)).schedule,
                target=target, timing=TIMING,
            )
            for task in tasks
        )  # fmt: skip
        rounds = [total_s(runner.measure(requests), tuple(tasks.values())) for _ in range(ROUNDS)]
    return min(rounds)


def total_s(results: Sequence[MeasureResult], weights: Sequence[int]) -> float:
    for result in results:
        if result.status != Status.OK:
            raise SystemExit(f"error: {result.status}: {result.error}")
    return sum(w * result.median_s for w, result in zip(weights, results, strict=True))


def torch_s(torch: Any, call: Callable[[], Any], calls: int = 50) -> float:
    """Seconds of a call, many back to back, the best of some rounds."""
    for _ in range(10):
        call()
    best = float("inf")
    for _ in range(ROUNDS):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(calls):
            call()
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


def goal(text: str, met: bool) -> bool:
    print(f"{'met' if met else 'MISSED'}: {text}\n", flush=True)
    return met


# ------------------------------------------------------------------------------------------- parts


def correct(setting: Setting) -> bool:
    """Defaults and random configs of every rule for layers of resnet18 and bert_small."""
    models = ("zoo:resnet18", "zoo:bert_small", "zoo:mobilenetv2")
    tasks: dict[Task, None] = {}
    for model in models:
        tasks |= dict.fromkeys(partition(optimize(load_model(model)), attention=False).weights())
    wrong = count = 0
    once = Timing(min_repeats=1, max_repeats=1, budget_s=0.01)
    with LocalRunner(setting.target) as runner:
        for rule in RULES.parts():
            for task in (t for t in tasks if rule.matches(t, setting.target)):
                space = rule.space(task, setting.target)
                rows = space.sample(np.random.default_rng(0), 20)
                configs = [rule.default(task, setting.target), *map(space.config, rows)]
                requests = tuple(
                    MeasureRequest(
                        task=task, schedule=rule.schedule(task, setting.target, config),
                        target=setting.target, timing=once,
                    )
                    for config in configs
                )  # fmt: skip
                results = runner.measure(requests)
                failed = [r for r in results if r.status != Status.OK]
                wrong, count = wrong + len(failed), count + len(results)
                for result in failed:
                    print(f"{rule.name} {task.key}: {result.status}: {result.error}")
    return goal(f"{count - wrong} of {count} configs are correct", wrong == 0)


def convolutions(setting: Setting) -> bool:
    torch, met = setting.torch, True
    torch.backends.cudnn.benchmark, torch.backends.cudnn.allow_tf32 = True, False
    for batch in (1, 16):
        faster = 0
        for size, channels, filters, kernel, stride in CONVOLUTIONS:
            name = f"conv{kernel}x{kernel}s{stride}_{size}x{channels}x{filters}_b{batch}"
            net, out = Network(name), -(-size // stride)
            x = net.input("x", np.float32, (batch, channels, size, size))
            w = net.weights((filters, channels, kernel, kernel), fan_in=channels * kernel**2)
            y = net.op("Conv", x, w, strides=[stride] * 2, pads=[kernel // 2] * 4)
            with tempfile.TemporaryDirectory() as folder:
                ours = tuned_s(saved(net, y, (batch, filters, out, out), folder),
                               setting.target, setting)  # fmt: skip
            data = torch.randn(batch, channels, size, size, device="cuda")
            layer = torch.nn.Conv2d(channels, filters, kernel, stride, kernel // 2, bias=False)
            best = float("inf")
            for memory in (torch.contiguous_format, torch.channels_last):
                given = data.contiguous(memory_format=memory)
                placed = layer.cuda().to(memory_format=memory)
                with torch.no_grad():
                    best = min(best, torch_s(torch, lambda p=placed, g=given: p(g)))
            faster += row(name, ours, best) > 1
        met &= goal(f"batch {batch}: faster than cuDNN on {faster} of 11, wanted 9", faster >= 9)
    return met


def product(setting: Setting, m: int, k: int, n: int, gelu: bool) -> float:
    """Speed-up of a bfloat16 product over cuBLAS."""
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

    def theirs() -> Any:
        if not gelu:
            return a @ b
        y = torch.addmm(bias, a, b)
        return y * torch.sigmoid(1.702 * y)

    return row(name, ours, torch_s(torch, theirs))


def matmuls(setting: Setting) -> bool:
    wanted = 0.9 if "wgmma" in open_device(setting.target).describe().features else 0.6
    shares = [product(setting, n, n, n, gelu=False) for n in (4096, 8192)]
    return goal(f"{min(shares):.0%} of cuBLAS, wanted {wanted:.0%}", min(shares) >= wanted)


def bert(setting: Setting) -> bool:
    speedups = [product(setting, m, k, n, gelu=True) for m, k, n in BERT]
    mean = statistics.geometric_mean(speedups)
    return goal(f"{mean:.2f}x cuBLAS on average, wanted 1.00x", mean >= 1)


def rows(setting: Setting) -> bool:
    """Softmax and layer norm of 64 MB: read once, written once."""
    shape, shares = (16384, 1024), []
    with LocalRunner(setting.target) as runner:
        copy = runner.profile().levels[-1].copy_bytes_per_s
    for op in ("Softmax", "LayerNormalization"):
        net = Network(op.lower())
        x = net.input("x", np.float32, shape)
        extra = [net.vector(shape[1], 1.0), net.vector(shape[1])] if op != "Softmax" else []
        y = net.op(op, x, *extra, axis=-1)
        with tempfile.TemporaryDirectory() as folder:
            ours = tuned_s(saved(net, y, shape, folder), setting.target, setting)
        shares.append(row(net.name, ours, 2 * 4 * shape[0] * shape[1] / copy))
    return goal(f"{min(shares):.0%} of copying, wanted 90%", min(shares) >= 0.9)


def models(setting: Setting) -> bool:
    """Whole networks, the data on the device; inference in float32, TF32 off."""
    torch = setting.torch
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    import torchvision
    import transformers

    image = torch.randn(1, 3, 224, 224, device="cuda")
    words = torch.randint(0, 30000, (1, 128), device="cuda")
    cases = (
        ("resnet18", torchvision.models.resnet18(), image),
        ("bert_base", transformers.BertModel(transformers.BertConfig()), words),
    )
    speedups = []
    for name, network, data in cases:
        placed = network.eval().cuda()
        with tempfile.TemporaryDirectory() as folder, torch.no_grad():
            path = f"{folder}/{name}.onnx"
            torch.onnx.export(placed, (data,), path, dynamo=False)
            autotune.tune(path, target=setting.target, log=setting.log, trials=1000)
            model = autotune.compile(path, target=setting.target, log=setting.log)
            ours = model.bench(50).median_s
            compiled = torch.compile(placed, mode="max-autotune")
            speedups.append(row(name, ours, torch_s(torch, lambda c=compiled, d=data: c(d))))
    return goal(f"{min(speedups):.2f}x torch.compile, wanted 1.00x", min(speedups) >= 1)


def board(setting: Setting) -> bool:
    """A model tuned on a board over the network, compiled here from the log alone."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        place = f"127.0.0.1:{probe.getsockname()[1]}"
    command = [sys.executable, "-m", "rpc_server", "serve", "--listen", place]
    served = subprocess.Popen([*command, "--target", setting.target.name])
    try:
        time.sleep(5)
        with tempfile.TemporaryDirectory() as folder:
            log = f"{folder}/board.db"
            autotune.tune("zoo:tiny", target=setting.target, log=log, trials=40,
                          device=f"rpc://{place}")  # fmt: skip
            model = autotune.compile("zoo:tiny", target=setting.target, log=log)
        return goal(
            "kernels come from records of the board",
            {kernel.source for kernel in model.image.kernels} == {"record"},
        )
    finally:
        served.terminate()
        served.wait()


PARTS: dict[str, Callable[[Setting], bool]] = {
    p.__name__: p for p in (correct, convolutions, matmuls, bert, rows, models, board)
}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--target", default="sm_90a")
    parser.add_argument("--trials", type=int, default=70, help="per kernel")
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
    import torch

    sensors = open_nvml(0)
    if options.lock_clocks and (sensors is None or not sensors.lock_clocks()):
        print("clocks cannot be locked here", file=sys.stderr)
    try:
        return run(options, target, torch)
    finally:
        if sensors:
            sensors.close()


def run(options: argparse.Namespace, target: Target, torch: Any) -> int:
    """Every part that was asked for."""
    setting = Setting(target=target, trials=options.trials, log=options.log, torch=torch)
    met = [PARTS[name](setting) for name in options.only]
    return 0 if all(met) else 1


if __name__ == "__main__":
    sys.exit(main())
