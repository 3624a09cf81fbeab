"""Whole networks for a CPU with matrix tiles, on an emulator of these."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import autotune
import cost_model
from autotune.cli import main
from autotune.compiler import build
from autotune.frontend.zoo.images import ImageNetwork
from autotune.machine import Machine
from autotune.runtime import native_session as runtime
from autotune.target import Target, host_target, load_target
from autotune.types import Array
from search_spaces.rules import RULES
from tests.emulator.tiles import emulated_tiles, with_tiles
from tests.networks import network
from tests.unit.codegen.kernels import matmul


@pytest.fixture(autouse=True)
def built_and_run_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """No worker process builds, and the host's lack of tiles does not matter."""
    monkeypatch.setattr(build, "SERIAL_BELOW", 1000)
    monkeypatch.setattr(runtime, "check_host", lambda *_: None)


def small() -> object:
    """Convolutions of 3x3, 1x1 and of strides, with a residual."""
    net = ImageNetwork("small", (1, 16, 12, 12))
    x = net.relu(net.conv_norm(net.image, 64, 3))
    x = net.relu(net.same("Add", net.conv_norm(x, 64, 1), x))
    x = net.relu(net.conv_norm(x, 48, 3, 2))
    return net.classify(x, classes=10)


def inputs_of(model: autotune.CompiledModel) -> dict[str, Array]:
    rng = np.random.default_rng(0)
    return {
        name: rng.integers(0, 40, kind.shape).astype(kind.dtype)
        if "int" in kind.dtype
        else rng.standard_normal(kind.shape).astype(np.float32)
        for name, kind in model.inputs.items()
    }


@pytest.mark.parametrize(
    ("name", "precision", "threads", "product"),
    [
        ("small", "bf16", 2, "tdpbf16ps"),
        pytest.param("small", "int8", 1, "tdpbusd", marks=pytest.mark.slow),
        pytest.param("encoder_small", "bf16", 1, "tdpbf16ps", marks=pytest.mark.slow),
    ],
)
def test_a_network_s_products_are_of_tiles(
    name: str, precision: str, threads: int, product: str
) -> None:
    model = small() if name == "small" else network(name)
    plain = autotune.compile(model)  # type: ignore[arg-type]
    inputs = inputs_of(plain)
    want = plain.run(inputs)
    with emulated_tiles() as tiles:
        target = with_tiles(host_target(threads)).with_precision(precision)
        made = autotune.compile(model, target=target)  # type: ignore[arg-type]
        got = made.run(inputs)
        made.close()
    assert tiles.counts[product] > 100
    for key, value in want.items():
        np.testing.assert_allclose(got[key], value, atol=0.05 * np.max(np.abs(value)))


def test_what_stays_float32_is_told() -> None:
    target = load_target("x86-64-v3").with_precision("bf16")
    told = autotune.compile(small(), target=target).notes  # type: ignore[arg-type]
    assert told == ("4 of 4 products stay float32: bf16 is not faster for them",)


GRANITE = "+avx512bf16,+avx512vnni,+avx512fp16"
TILES = ",+amx-tile,+amx-bf16,+amx-int8"


def with_features(features: str, precision: str = "bf16") -> Target:
    base = load_target("x86-64-v4").with_precision(precision)
    return dataclasses.replace(base, features=f"{base.features},{features}")


@pytest.mark.parametrize(
    ("features", "algorithm"),
    [
        (GRANITE + TILES, "amx_bf16"),
        (GRANITE, "float32"),  # its vectors multiply bfloat16 at half the rate of float32
        ("+avx512bf16", "bf16"),  # Zen 4 does so at twice the rate
        ("+avx512vnni", "float32"),
    ],
)
def test_large_products_take_what_the_machine_does_fastest(features: str, algorithm: str) -> None:
    made, target = matmul(128, 768, 768), with_features(features)
    config = cost_model.default(made, Machine.of(target), RULES.get("contraction"))
    chosen = str(config["algorithm"])
    assert (chosen if "bf16" in chosen else "float32") == algorithm


def test_tasks_say_it_too(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["tasks", "zoo:tiny", "--target", "x86-64-v3", "--precision", "bf16"])
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == "4 of 4 products stay float32: bf16 is not faster for them"
