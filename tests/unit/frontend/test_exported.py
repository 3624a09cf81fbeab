"""What torch.export makes is compiled as an ONNX model is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import autotune
from autotune.cli import execute
from autotune.errors import FeedError, ModelError
from autotune.frontend import load_model
from autotune.graph.interp import run_graph

# PyTorch's exporter warns itself of what PyTorch will drop.
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(),
        nn.Linear(8 * 16, 5),
    ).eval()  # fmt: skip


def exported(model: nn.Module, *inputs: torch.Tensor, **options: Any) -> Any:
    with torch.no_grad():
        return torch.export.export(model, inputs, **options)


def test_a_program_is_compiled_and_keeps_its_names() -> None:
    model, x = network(), torch.randn(2, 3, 4, 4)
    program = exported(model, x)
    compiled = autotune.compile(program, machine="nominal")
    ((name, _),) = compiled.inputs.items()
    assert name == program.graph_signature.user_inputs[0]
    (found,) = compiled.run({name: x.numpy()}).values()
    np.testing.assert_allclose(found, model(x).detach().numpy(), rtol=1e-4, atol=1e-5)


def test_a_file_is_compiled_from_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, artifact = str(tmp_path / "model.pt2"), str(tmp_path / "model.model")
    model, x = nn.Linear(4, 3), torch.randn(2, 4)
    torch.export.save(exported(model, x), path)
    command = ["compile", path, "--machine", "nominal", "-o", artifact]
    assert execute(command) == 0, capsys.readouterr().err
    with autotune.load(artifact) as loaded:
        (found,) = loaded.run({"input": x.numpy()}).values()
    np.testing.assert_allclose(found, model(x).detach().numpy(), rtol=1e-4, atol=1e-5)


def test_open_sizes_are_symbols() -> None:
    model = nn.Sequential(nn.Linear(6, 4), nn.ReLU())
    rows = torch.export.Dim("rows", min=2, max=64)
    program = exported(model, torch.randn(3, 6), dynamic_shapes=({0: rows},))
    sized = autotune.compile(program, machine="nominal")
    assert len(sized.inputs["input"].shape) == 2
    assert "one program" in sized.notes[0]  # for the range of the export
    with pytest.raises(FeedError, match="the range is 2 to 64"):
        sized.run({"input": np.zeros((65, 6), np.float32)})
    for count in (2, 5):
        x = torch.randn(count, 6)
        (found,) = sized.run({"input": x.numpy()}).values()
        np.testing.assert_allclose(found, model(x).detach().numpy(), rtol=1e-4, atol=1e-5)
    with pytest.raises(ModelError, match="are open; export it with fixed ones"):
        load_model(program)


def test_a_buffer_that_is_written_is_an_input_and_an_output() -> None:
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("seen", torch.zeros(2))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.seen.add_(1)
            return x + self.seen

    graph = load_model(exported(Counting(), torch.zeros(2)))
    feeds = {"b_seen": np.full(2, 3.0, np.float32), "x": np.ones(2, np.float32)}
    made = run_graph(graph, feeds, "float32")
    assert [a.tolist() for a in made.values()] == [[4.0, 4.0], [5.0, 5.0]]


def test_halves_are_declared() -> None:
    model, x = nn.Linear(4, 3).to(torch.bfloat16), torch.randn(2, 4, dtype=torch.bfloat16)
    graph = load_model(exported(model, x))
    assert dict(graph.declared) == {"input": "bfloat16", graph.outputs[0][0]: "bfloat16"}


def test_what_cannot_be_read_is_told_in_a_line(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="there is no such file"):
        load_model(str(tmp_path / "none.pt2"))
    broken = tmp_path / "broken.pt2"
    broken.write_bytes(b"nothing")
    with pytest.raises(ModelError, match=r"no program of torch\.export"):
        load_model(broken)

    class Other(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.linalg.qr(x)[1]

    with pytest.raises(ModelError, match=r"linalg_qr.*not supported"):
        load_model(exported(Other(), torch.randn(3, 3)))
