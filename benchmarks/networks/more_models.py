"""Networks that nothing here was made for: written with PyTorch, then compared with the peers.

    python benchmarks/networks/more_models.py [NAME ...] [--folder build/models] [--write]
        [-- OPTIONS]

Needs the extras [torch] (to write models; those that are there already are kept) and [bench].
Weights are random under a seed; what batch norms remember too. Prints the table of
`benchmarks/peers.py`, which takes the OPTIONS; `--write` only writes.
"""

from __future__ import annotations

import argparse
import itertools
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

CLASSIFIERS = {
    "efficientnet_b0": (1, 224), "mobilenet_v3_large": (1, 224), "mobilenet_v3_small": (1, 224),
    "regnet_y_400mf": (1, 224), "resnext50_32x4d": (1, 224), "wide_resnet50_2": (1, 224),
    "convnext_tiny": (1, 224), "vit_b_16": (1, 224), "swin_t": (1, 224), "mnasnet1_0": (1, 224),
    "shufflenet_v2_x1_5": (1, 224), "densenet169": (1, 224), "resnet34": (8, 97),
    "mobilenet_v2": (4, 225),
}  # fmt: skip
"""torchvision's -> batch and size of the image."""


def autoencoder() -> Any:
    from torch import nn

    layers: list[Any] = []
    for i, o in ((3, 32), (32, 64), (64, 128)):
        layers += [nn.Conv2d(i, o, 4, 2, 1), nn.BatchNorm2d(o), nn.LeakyReLU(0.2)]
    for i, o in ((128, 64), (64, 32)):
        layers += [nn.ConvTranspose2d(i, o, 4, 2, 1), nn.BatchNorm2d(o), nn.ReLU()]
    return nn.Sequential(*layers, nn.ConvTranspose2d(32, 3, 4, 2, 1), nn.Sigmoid())


def super_resolution() -> Any:
    from torch import nn

    first = [nn.Conv2d(1, 64, 5, padding=2), nn.PReLU(64), nn.Conv2d(64, 32, 3, padding=1)]
    return nn.Sequential(*first, nn.Tanh(), nn.Conv2d(32, 9, 3, padding=1), nn.PixelShuffle(3))


def audio() -> Any:
    from torch import nn

    layers: list[Any] = []
    for i, o, k, s in ((1, 64, 80, 16), (64, 64, 3, 1), (64, 128, 3, 1)):
        layers += [nn.Conv1d(i, o, k, s), nn.BatchNorm1d(o), nn.ReLU(), nn.MaxPool1d(4)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(128, 35))


def volume() -> Any:
    from torchvision.models import video

    return video.r3d_18(weights=None)


def segmentation() -> Any:
    from torch import nn
    from torchvision.models.segmentation import deeplabv3_resnet50

    class Out(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.layers = deeplabv3_resnet50(weights=None, weights_backbone=None)

        def forward(self, x: Any) -> Any:
            return self.layers(x)["out"]

    return Out()


def perceptron() -> Any:
    from torch import nn

    return nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(),
                         nn.Linear(512, 10))  # fmt: skip


def lstm() -> Any:
    from torch import nn

    class Last(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.LSTM(64, 128, 2, batch_first=True)

        def forward(self, x: Any) -> Any:
            return self.layers(x)[0]

    return Last()


def mobilenet_v1() -> Any:
    """Depthwise and 1x1 convolutions of up to 1024 channels."""
    from torch import nn

    def block(i: int, o: int, k: int, stride: int, groups: int = 1) -> list[Any]:
        conv = nn.Conv2d(i, o, k, stride, k // 2, groups=groups, bias=False)
        return [conv, nn.BatchNorm2d(o), nn.ReLU()]

    layers = block(3, 32, 3, 2)
    sizes = (32, 64, 128, 128, 256, 256, *(512,) * 6, 1024, 1024)
    for number, (i, o) in enumerate(itertools.pairwise(sizes)):
        layers += block(i, i, 3, 2 if number in (1, 3, 5, 11) else 1, i) + block(i, o, 1, 1)
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(1024, 1000)]
    return nn.Sequential(*layers, *head)


def graph_sage() -> Any:
    """Nodes join the mean of what lies along the edges that end there."""
    import torch
    from torch import nn

    class Sage(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            sizes = ((96, 128), (128, 48))
            self.own = nn.ModuleList(nn.Linear(i, o) for i, o in sizes)
            self.others = nn.ModuleList(nn.Linear(i, o) for i, o in sizes)

        def forward(self, x: Any, edges: Any) -> Any:
            source, target = edges[0], edges[1]
            ones = torch.ones(edges.shape[1])
            count = torch.zeros(x.shape[0]).scatter_add(0, target, ones).clamp(min=1)
            for own, others in zip(self.own, self.others, strict=True):
                places = target.unsqueeze(1).expand(-1, x.shape[1])
                total = torch.zeros_like(x).scatter_add(0, places, x[source])
                x = (own(x) + others(total / count.unsqueeze(1))).relu()
            return x

    return Sage()


def graph_attention() -> Any:
    """Nodes join what lies along the edges that end there, weighted by a softmax over these."""
    import torch
    from torch import nn

    class Attention(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.values, self.score = nn.Linear(64, 64), nn.Linear(128, 1)

        def forward(self, x: Any, edges: Any) -> Any:
            source, target = edges[0], edges[1].unsqueeze(1)
            x = self.values(x)
            moved = x[source]
            score = self.score(torch.cat((moved, x[edges[1]]), 1))
            weight = nn.functional.leaky_relu(score, 0.2).exp()
            total = torch.zeros(x.shape[0], 1).scatter_add(0, target, weight)
            moved = moved * (weight / total[edges[1]])
            places = target.expand(-1, x.shape[1])
            return torch.zeros_like(x).scatter_add(0, places, moved)

    return Attention()


EDGES = {"graph_sage": 2048, "graph_attention": 1024}
"""Of graphs; their ends are a second input."""
OTHERS: dict[str, tuple[Callable[[], Any], tuple[int, ...]]] = {
    "autoencoder": (autoencoder, (4, 3, 64, 64)), "audio": (audio, (2, 1, 8000)),
    "super_resolution": (super_resolution, (1, 1, 97, 97)), "lstm": (lstm, (1, 50, 64)),
    "mobilenet_v1": (mobilenet_v1, (1, 3, 224, 224)),
    "mobilenet_v1_batch8": (mobilenet_v1, (8, 3, 224, 224)),
    "volume": (volume, (1, 3, 8, 64, 64)), "perceptron": (perceptron, (32, 784)),
    "segmentation": (segmentation, (1, 3, 129, 129)),
    "graph_sage": (graph_sage, (256, 96)), "graph_attention": (graph_attention, (256, 64)),
}  # fmt: skip


def random_statistics(model: Any) -> None:
    """Gives what batch norms remember, and linear layers' weights, values that keep sizes."""
    import torch

    for layer in model.modules():
        if isinstance(layer, torch.nn.modules.batchnorm._BatchNorm):
            if layer.running_mean is not None and layer.running_var is not None:
                layer.running_mean.normal_(0, 0.1)
                layer.running_var.uniform_(0.8, 1.2)
        elif isinstance(layer, torch.nn.Linear):
            torch.nn.init.normal_(layer.weight, 0, layer.in_features**-0.5)


def write(name: str, path: Path) -> None:
    import torch
    from torchvision import models

    torch.manual_seed(0)
    torch.backends.mha.set_fastpath_enabled(False)
    if name in OTHERS:
        make, shape = OTHERS[name]
        model = make()
    else:
        batch, size = CLASSIFIERS[name]
        model, shape = getattr(models, name)(weights=None), (batch, 3, size, size)
    random_statistics(model)
    given = [torch.randn(shape)]
    if name in EDGES:
        given.append(torch.randint(0, shape[0], (2, EDGES[name])))
    with torch.no_grad():
        torch.onnx.export(model.eval(), tuple(given), path, dynamo=False, opset_version=17)


def compare(text: str | None, known: Sequence[str], write: Callable[[str, Path], None]) -> int:
    """The command of a list of models: `text` says what it is, `write` makes a file of one."""
    parser = argparse.ArgumentParser(description=(text or "").split("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", default=[])
    parser.add_argument("--folder", type=Path, default=Path("build/models"))
    parser.add_argument("--write", action="store_true", help="write the models only")
    split = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    options = parser.parse_args(sys.argv[1:split])
    if unknown := sorted(set(options.names) - set(known)):
        parser.error(f"{', '.join(unknown)}: the models are {', '.join(known)}")
    options.folder.mkdir(parents=True, exist_ok=True)
    paths = [options.folder / f"{name}.onnx" for name in options.names or known]
    for path in paths:
        if not path.exists():
            write(path.stem, path)
    if options.write:
        return 0
    peers = Path(__file__).parents[1] / "peers.py"
    return subprocess.run(
        [sys.executable, str(peers), *map(str, paths), *sys.argv[split + 1 :]], check=False
    ).returncode


def main() -> int:
    return compare(__doc__, (*CLASSIFIERS, *OTHERS), write)


if __name__ == "__main__":
    sys.exit(main())
