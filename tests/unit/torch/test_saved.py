"""Functions that PyTorch saves (`aot_compile`) are compiled again where they are loaded."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch._dynamo.aot_compile import ModelInput

from autotune.errors import ConfigError

PLAIN: dict[str, Any] = {"machine": "nominal", "threads": 1, "min_gain": 0}


def mixed(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.relu(x @ y).softmax(-1) + x


def saved(options: dict[str, Any] | None = None) -> Any:
    compiled: Any = torch.compile(mixed, backend="autotune", fullgraph=True, options=options)
    with torch.no_grad():
        return compiled.aot_compile(((torch.randn(8, 64), torch.randn(64, 64)), {}))


LOADER = """
import sys, torch
x, y, wanted = torch.load(sys.argv[2])
with open(sys.argv[1], "rb") as file, torch.no_grad():
    function = torch.compiler.load_compiled_function(file)
    torch.testing.assert_close(function(x, y), wanted)
graph = function._artifacts.compiled_fn
(compiled,) = graph._compiled.values()
assert compiled != graph._module.forward, "PyTorch ran it"
"""


def test_a_saved_function_is_ours_in_another_process(tmp_path: Path) -> None:
    x, y = torch.randn(8, 64), torch.randn(64, 64)
    function = saved(PLAIN)
    function.save_compiled_function(str(tmp_path / "function"))
    torch.save((x, y, mixed(x, y)), tmp_path / "data")
    command = [sys.executable, "-c", LOADER, str(tmp_path / "function"), str(tmp_path / "data")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_loaded_graph_is_compiled_for_each_form_of_its_arguments() -> None:
    graph = saved(PLAIN)._artifacts.compiled_fn
    kind = type(graph)
    loaded = kind.deserialize_compile_artifacts(kind.serialize_compile_artifacts(graph))
    for rows in (8, 3, 8):
        x, y = torch.randn(rows, 64), torch.randn(64, 64)
        (found,) = loaded(x, y)
        torch.testing.assert_close(found, mixed(x, y))
    assert len(loaded._compiled) == 2


def test_a_module_is_saved_and_its_weights_may_change(tmp_path: Path) -> None:
    model, x = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 8)), torch.randn(4, 64)
    place = str(tmp_path / "model")
    with torch.no_grad():
        made: Any = torch.compile(model, backend="autotune", fullgraph=True, options=PLAIN)
        made._aot_compile([ModelInput(args=(x,), kwargs={}, contexts=[torch.no_grad()])])
        made._save_aot_compiled_module(place)
        again: Any = torch.compile(model, backend="autotune", fullgraph=True, options=PLAIN)
        again._load_aot_compiled_module(Path(place).read_bytes())
        torch.testing.assert_close(again(x), model(x))
        next(model.parameters()).add_(1.0)
        torch.testing.assert_close(again(x), model(x))


def test_an_option_that_no_file_holds_is_a_line() -> None:
    function = saved({"log": Path("tuning.db")})
    kind = type(function._artifacts.compiled_fn)
    assert b'"tuning.db"' in kind.serialize_compile_artifacts(function._artifacts.compiled_fn)
    function._artifacts.compiled_fn._options = {"log": object()}
    with pytest.raises(ConfigError, match=r"to be saved: expected texts and numbers, got object"):
        kind.serialize_compile_artifacts(function._artifacts.compiled_fn)
