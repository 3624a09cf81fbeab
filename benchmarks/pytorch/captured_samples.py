"""Samples of the GraphNet data set (PaddlePaddle/GraphNet): captured graphs of PyTorch models, and
small networks that are written here.

In: a sample's folder, or `written/FAMILY/NAME`. Out: a module and its arguments. A sample holds
`model.py` with a GraphModule whose `forward` takes weights and inputs alike, and of each of them
its shape, element type, mean and deviation (or its numbers) in `weight_meta.py` and
`input_meta.py`. Weights become buffers here, the rest are arguments; all are drawn from a
generator seeded by their names.
"""

from __future__ import annotations

import ast
import inspect
import re
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

_WEIGHT_MARKS = ("_parameters_", "_buffers_", "parameters_", "buffers_")
_CUDA = (
    (re.compile(r"device\(type\s*=\s*['\"]cuda['\"][^)]*\)"), "device(type='cpu')"),
    (re.compile(r"cuda(:\d+)?(?=[\"'])"), "cpu"),
)
Fields = dict[str, Any]
WRITTEN = "written"
"""Networks that are written beside this file, instead of captured ones."""


class CapturedModule(torch.nn.Module):
    """A sample's graph, with its weights."""

    def __init__(self, graph: torch.nn.Module, names: Sequence[str], weights: Fields) -> None:
        super().__init__()
        self.graph, self._names, self._held = graph, names, set(weights)
        for name, fields in weights.items():
            self.register_buffer(f"w_{name}", _tensor(fields))

    def forward(self, *given: Any) -> Any:
        rest = iter(given)
        return self.graph(
            *(getattr(self, f"w_{n}") if n in self._held else next(rest) for n in self._names)
        )


def listed(paths: Sequence[str]) -> list[Path]:
    """Folders of samples: as they are, or those that a text file names, relative to itself."""
    return [folder for path in paths for folder in _folders(Path(path))]


def _folders(path: Path) -> Iterator[Path]:
    if str(path) == WRITTEN:
        for family, makers in _written().items():
            yield from (path / family / name for name in makers)
        return
    if path.is_dir() or path.parts[0] == WRITTEN:
        yield path
        return
    for line in path.read_text().split():
        yield path.parent / line


def _written() -> dict[str, Mapping[str, Callable[[], Any]]]:
    """By family and name, what makes a written network."""
    from benchmarks.pytorch.written_images import IMAGES
    from benchmarks.pytorch.written_sequences import SEQUENCES

    return {"images": IMAGES, "sequences": SEQUENCES}


def load(folder: Path) -> tuple[torch.nn.Module, list[Any]]:
    """A sample's module, in evaluation mode, and its arguments. The sample is a program: it is
    run."""
    if folder.parts[0] == WRITTEN:
        torch.manual_seed(0)
        module, given = _written()[folder.parts[1]][folder.name]()
        return module.eval(), list(given)
    source = (folder / "model.py").read_text()
    for pattern, instead in _CUDA:
        source = pattern.sub(instead, source)
    space: dict[str, Any] = {}
    exec(compile(source, str(folder / "model.py"), "exec"), space)
    graph = space["GraphModule"]()
    parameters = inspect.signature(graph.forward).parameters
    sizes = {n for n, p in parameters.items() if "SymInt" in str(p.annotation)}
    fields = dict(_described(folder))
    weights = {
        n: fields[n]
        for n in parameters
        if n not in sizes and any(mark in n for mark in _WEIGHT_MARKS)
    }
    arguments = [
        int(fields[n]["data"][0]) if n in sizes else _tensor(fields[n])
        for n in parameters
        if n not in weights
    ]
    return CapturedModule(graph, tuple(parameters), weights).eval(), arguments


def _described(folder: Path) -> Iterator[tuple[str, Fields]]:
    """(name, what is known of it) of every tensor."""
    for file in ("weight_meta.py", "input_meta.py"):
        path = folder / file
        tree = ast.parse(path.read_text() if path.exists() else "")
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                fields = {
                    line.targets[0].id: _literal(line.value)  # type: ignore[attr-defined]
                    for line in node.body
                    if isinstance(line, ast.Assign)
                }
                yield fields["name"], fields


def _literal(node: ast.expr) -> Any:
    """A literal, or float('inf') and the like."""
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "float":
        return float(ast.literal_eval(node.args[0]))
    if isinstance(node, ast.UnaryOp) and isinstance(node.operand, ast.Call):
        return -_literal(node.operand)
    return ast.literal_eval(node)


def _tensor(fields: Fields) -> torch.Tensor:
    dtype = getattr(torch, fields["dtype"].removeprefix("torch."))
    shape, data = fields["shape"], fields.get("data")
    maker = torch.Generator().manual_seed(zlib.crc32(fields["name"].encode()))
    if data is not None:
        return torch.tensor(data, dtype=torch.float64).reshape(shape).to(dtype)
    if dtype == torch.bool:
        return torch.rand(shape, generator=maker) < 0.5
    if not dtype.is_floating_point and not dtype.is_complex:
        low, high = fields.get("min_val", 0), fields.get("max_val", 1)
        return torch.randint(low, high + 1, shape, generator=maker).to(dtype)
    mean, deviation = fields.get("mean") or 0.0, fields.get("std")
    drawn = torch.randn(shape, generator=maker) * (1.0 if deviation is None else deviation) + mean
    return (drawn.abs() + 1e-3 if "running_var" in fields["name"] else drawn).to(dtype)
