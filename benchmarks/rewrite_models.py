"""Models that equations between graphs pay on, with and without them, and the peers beside.

    python benchmarks/rewrite_models.py [NAME ...] [--threads 1] [--rounds 15] [--folder FOLDER]
        [--tune SECONDS] [--rows FILE] [--table]

Needs the extra [bench], and to write models, where they are not there yet, [torch] and
torchvision. Weights are random under a seed, definitions public: named beside each. Every round
runs each way once after another (A B A B), nothing is tuned without `--tune`: with it, each of our
ways for so many seconds, in a log of its own. Prints a table in Markdown: of the
milliseconds of each way the median, and in parentheses the lower quartile and the least, which
other work on the machine moves less; the ratio of ours without rewrites to ours with them, of each
of the three ("same" where none was taken: it is one program, and not tuned); the largest
difference over the largest value, the seconds of the search, and the rewrites. `--rows` keeps a
line of JSON for each model and number of threads, and what has one is not run again; `--table`
prints what is there.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import peers
from benchmarks.rewrites.anchor_models import ANCHORS, Definition, written
from benchmarks.rewrites.reduced_models import REDUCED

ROUNDS = 15
Row = dict[str, Any]


def conv(i: int, o: int, k: int = 3, d: int = 1, stride: int = 1) -> list[Any]:
    from torch import nn

    return [nn.Conv2d(i, o, k, stride, d * (k // 2), d), nn.ReLU()]


def csrnet() -> Any:
    """Crowd counting: the first ten layers of VGG-16, six dilated ones (Li et al. 2018)."""
    from torch import nn

    layers: list[Any] = []
    for i, o in ((3, 64), (64, 64), (0, 0), (64, 128), (128, 128), (0, 0), (128, 256), (256, 256),
                 (256, 256), (0, 0), (256, 512), (512, 512), (512, 512)):  # fmt: skip
        layers += conv(i, o) if i else [nn.MaxPool2d(2)]
    for i, o in ((512, 512), (512, 512), (512, 512), (512, 256), (256, 128), (128, 64)):
        layers += conv(i, o, d=2)
    return nn.Sequential(*layers, nn.Conv2d(64, 1, 1))


def context() -> Any:
    """Four dilated 3x3 convolutions of 128 channels (Yu and Koltun 2016)."""
    from torch import nn

    return nn.Sequential(*(layer for _ in range(4) for layer in conv(128, 128, d=2)))


def fcn_head() -> Any:
    """512 channels resized by 8, then 1x1 to 32."""
    from torch import nn

    up = nn.Upsample(scale_factor=8, mode="bilinear")
    return nn.Sequential(up, nn.Conv2d(512, 32, 1))


def segformer_head() -> Any:
    """Levels of a pyramid to 256 channels, resized, joined and mixed (Xie et al. 2021)."""
    import torch
    from torch import nn

    widths = (32, 64, 160, 256)
    layers: dict[str, Any] = {f"p{i}": nn.Conv2d(w, 256, 1) for i, w in enumerate(widths)}
    layers["mix"] = nn.Sequential(nn.Conv2d(1024, 256, 1, bias=False), nn.BatchNorm2d(256),
                                  nn.ReLU(), nn.Conv2d(256, 150, 1))  # fmt: skip

    def forward(parts: Any, *levels: Any) -> Any:
        size = levels[0].shape[2:]
        made = [parts[f"p{i}"](x) for i, x in enumerate(levels)]
        wide = [nn.functional.interpolate(x, size=size, mode="bilinear") for x in made[:0:-1]]
        return parts["mix"](torch.cat([*wide, made[0]], 1))

    return written(layers, forward)


def gcn() -> Any:
    """Two layers over a graph's normalized adjacency (Kipf and Welling 2017)."""
    from torch import nn

    layers = {"one": nn.Linear(256, 16, bias=False), "two": nn.Linear(16, 7, bias=False)}

    def forward(parts: Any, a: Any, x: Any) -> Any:
        return parts["two"](a @ parts["one"](a @ x).relu())

    return written(layers, forward)


def linear_attention() -> Any:
    """Attention without a softmax (Katharopoulos et al. 2020), as it is often written."""

    def forward(_: Any, q: Any, k: Any, v: Any) -> Any:
        return (q @ k.transpose(-1, -2)) @ v

    return written({}, forward)


def last_token() -> Any:
    """A layer's perceptron and a vocabulary, of which the last token's words are asked."""
    from torch import nn

    layers: dict[str, Any] = {
        "up": nn.Linear(512, 2048), "down": nn.Linear(2048, 512), "words": nn.Linear(512, 8192),
    }  # fmt: skip

    def forward(parts: Any, x: Any) -> Any:
        return parts["words"](parts["down"](parts["up"](x).relu()))[:, -1, :]

    return written(layers, forward)


def activation_maps() -> Any:
    """Class activation maps and their mean (Zhou et al. 2016)."""
    from torch import nn

    return nn.Sequential(*conv(512, 512), nn.Conv2d(512, 1000, 1), nn.AdaptiveAvgPool2d(1))


def aspp() -> Any:
    """DeepLab's pyramid of dilated convolutions (Chen et al. 2017)."""
    import torch
    from torch import nn

    layers = {f"d{d}": nn.Sequential(*conv(512, 256, d=d)) for d in (6, 12, 18)}
    layers |= {
        "one": nn.Sequential(*conv(512, 256, 1)),
        "mix": nn.Sequential(*conv(1024, 256, 1)),
    }

    def forward(parts: Any, x: Any) -> Any:
        return parts["mix"](torch.cat([parts[n](x) for n in ("one", "d6", "d12", "d18")], 1))

    return written(layers, forward)


def generator() -> Any:
    """DCGAN's (Radford et al. 2016), 64x64."""
    from torch import nn

    layers: list[Any] = [nn.ConvTranspose2d(100, 512, 4), nn.ReLU()]
    for i, o in ((512, 256), (256, 128), (128, 64)):
        layers += [nn.ConvTranspose2d(i, o, 4, 2, 1), nn.ReLU()]
    return nn.Sequential(*layers, nn.ConvTranspose2d(64, 3, 4, 2, 1), nn.Tanh())


def fsrcnn() -> Any:
    """Super-resolution by 3 (Dong et al. 2016)."""
    from torch import nn

    layers: list[Any] = [nn.Conv2d(1, 56, 5, padding=2), nn.PReLU(56)]
    layers += [nn.Conv2d(56, 12, 1), nn.PReLU(12)]
    for _ in range(4):
        layers += [nn.Conv2d(12, 12, 3, padding=1), nn.PReLU(12)]
    layers += [nn.Conv2d(12, 56, 1), nn.PReLU(56)]
    return nn.Sequential(*layers, nn.ConvTranspose2d(56, 1, 9, 3, 4, output_padding=2))


def with_zeros(network: Any) -> Any:
    """A sequence whose transposed convolutions are what they say, literally: zeros between places,
    then a convolution by turned weights."""
    import torch
    from torch import nn

    class Zeros(nn.Module):
        def __init__(self, layer: Any) -> None:
            super().__init__()
            self.weight = nn.Parameter(layer.weight.flip(2, 3).transpose(0, 1).contiguous())
            self.bias = layer.bias
            self.step, k, p = layer.stride[0], layer.kernel_size[0], layer.padding[0]
            self.around = (k - 1 - p, k - 1 - p + layer.output_padding[0])

        def forward(self, x: Any) -> Any:
            n, c, h, w = x.shape
            s = self.step
            wide = nn.functional.pad(x.reshape(n, c, h, 1, w, 1), (0, s - 1, 0, 0, 0, s - 1))
            wide = wide.reshape(n, c, h * s, w * s)[:, :, : h * s - s + 1, : w * s - s + 1]
            wide = nn.functional.pad(wide, self.around * 2)
            return torch.conv2d(wide, self.weight, self.bias)

    return nn.Sequential(
        *(Zeros(layer) if isinstance(layer, nn.ConvTranspose2d) else layer for layer in network)
    )


MODELS: dict[str, Definition] = {
    "csrnet": (csrnet, ((1, 3, 192, 256),)),
    "context": (context, ((1, 128, 48, 64),)),
    "fcn_head": (fcn_head, ((1, 512, 28, 28),)),
    "segformer_head": (
        segformer_head, ((1, 32, 64, 64), (1, 64, 32, 32), (1, 160, 16, 16), (1, 256, 8, 8)),
    ),
    "gcn": (gcn, ((1024, 1024), (1024, 256))),
    "linear_attention": (linear_attention, ((1, 8, 512, 64),) * 3),
    "last_token": (last_token, ((1, 64, 512),)),
    "activation_maps": (activation_maps, ((1, 512, 14, 14),)),
    "aspp": (aspp, ((1, 512, 33, 33),)),
    "dcgan": (generator, ((1, 100, 1, 1),)),
    "fsrcnn": (fsrcnn, ((1, 1, 160, 160),)),
    "dcgan_zeros": (lambda: with_zeros(generator()), ((1, 100, 1, 1),)),
    "fsrcnn_zeros": (lambda: with_zeros(fsrcnn()), ((1, 1, 160, 160),)),
    **REDUCED,
    **ANCHORS,
}  # fmt: skip


def write(name: str, path: Path) -> None:
    import torch

    torch.manual_seed(0)
    make, shapes = MODELS[name]
    given = tuple(torch.randn(shape) for shape in shapes)
    with torch.no_grad():
        torch.onnx.export(make().eval(), given, path, dynamo=False, opset_version=17)


def compare(name: str, path: Path, options: argparse.Namespace) -> Row:
    """A model's row."""
    import autotune
    from autotune.compiler.driver import load_prepared
    from autotune.request import CompileRequest

    request = CompileRequest(path, threads=options.threads)
    begin = time.perf_counter()
    load_prepared(CompileRequest(path, threads=options.threads, rewrites="none"),
                  request.wanted_target())  # fmt: skip
    middle = time.perf_counter()
    steps = load_prepared(request, request.wanted_target()).derivation
    search_s = (time.perf_counter() - middle) - (middle - begin)
    feed = peers.feeds(path)
    logs = [tuned(path, r, options) if options.tune and steps else None for r in ("none", None)]
    models = [autotune.compile(path, threads=options.threads, rewrites=r, log=log)
              for r, log in zip(("none", None), logs, strict=True)]  # fmt: skip
    runs: list[Callable[[], Any]] = [lambda m=m: list(m.run(feed).values()) for m in models]
    runs += [peers.onnxruntime(path, feed, options), peers.openvino(path, feed, options)]
    before, after = (run()[0].copy() for run in runs[:2])
    times: list[list[float]] = [[] for _ in runs]
    for _ in range(options.rounds):
        for run, seen in zip(runs, times, strict=True):
            begin = time.perf_counter()
            run()
            seen.append(time.perf_counter() - begin)
    return {
        "model": name, "threads": options.threads, "tuned": options.tune,
        "ms": [of_runs(seconds) for seconds in times],
        "differs": float(np.abs(before - after).max() / np.abs(before).max()),
        "search_s": max(search_s, 0.0),
        "rewrites": list(dict.fromkeys(step.rewrite for step in steps)),
    }  # fmt: skip


def tuned(path: Path, rewrites: str | None, options: argparse.Namespace) -> Path:
    """A new log of what tuning finds, for a way with these rewrites."""
    import autotune

    log = path.with_name(f"{path.stem}.{rewrites or 'some'}.{options.threads}.db")
    log.unlink(missing_ok=True)
    autotune.tune(path, log=log, threads=options.threads, rewrites=rewrites, time_s=options.tune)
    return log


def ratios(row: Row) -> list[float]:
    """Without over with rewrites, by median, quartile and least. Without a step both ways are the
    same program, whatever the clock says."""
    without, within, *_ = row["ms"]
    return [a / b if row["rewrites"] else 1.0 for a, b in zip(without, within, strict=True)]


def line(row: Row) -> str:
    """A row of the table in Markdown."""
    gain = shown([f"{r:.2f}x" for r in ratios(row)]) if row["rewrites"] else "same"
    cells = [row["model"], *(shown([f"{ms:.3f}" for ms in three]) for three in row["ms"]), gain]
    cells += [f"{row['differs']:.0e}", f"{row['search_s']:.1f}"]
    return f"| {' | '.join([*cells, ', '.join(row['rewrites']) or 'none'])} |"


def kept(options: argparse.Namespace) -> dict[str, Row]:
    """The last row of each model for this number of threads and time of tuning."""
    if options.rows is None or not options.rows.exists():
        return {}
    rows = [json.loads(text) for text in options.rows.read_text().splitlines()]
    wanted = (options.threads, options.tune)
    return {row["model"]: row for row in rows if (row["threads"], row.get("tuned", 0)) == wanted}


def of_runs(seconds: list[float]) -> tuple[float, float, float]:
    """Milliseconds of a way's runs: the median, the lower quartile, the least."""
    median, quartile, least = (float(q) * 1e3 for q in np.quantile(seconds, (0.5, 0.25, 0.0)))
    return median, quartile, least


def shown(three: list[str]) -> str:
    return f"{three[0]} ({', '.join(three[1:])})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(MODELS)}")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--folder", type=Path, default=Path("build/rewrites"))
    parser.add_argument("--tune", type=float, default=0, metavar="SECONDS", help="of each way")
    parser.add_argument("--rows", type=Path, help="a file of rows, a line of JSON each")
    parser.add_argument("--table", action="store_true", help="the rows that are there")
    options = parser.parse_args()
    options.precision = "float32"
    options.folder.mkdir(parents=True, exist_ok=True)
    print("| model | without, ms (quartile, least) | with | ONNX Runtime | OpenVINO | gain |"
          " differs | search, s | rewrites |\n|" + " --- |" * 9)  # fmt: skip
    there, found = kept(options), []
    for name in options.names or MODELS:
        path = options.folder / f"{name}.onnx"
        if name not in there and options.table:
            continue
        if name not in there:
            if not path.exists():
                write(name, path)
            there[name] = compare(name, path, options)
            if options.rows is not None:
                with options.rows.open("a") as file:
                    file.write(json.dumps(there[name]) + "\n")
        print(line(there[name]), flush=True)
        found.append(ratios(there[name]))
    means = [math.exp(statistics.fmean(map(math.log, of))) for of in zip(*found, strict=True)]
    ways = shown([f"{mean:.2f}x" for mean in means])
    print(f"\n{len(found)} models, {ways} in the geometric mean")


if __name__ == "__main__":
    main()
