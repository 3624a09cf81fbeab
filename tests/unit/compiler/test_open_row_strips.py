"""A program of open sizes whose layers run in strips of rows at some of them, against ONNX Runtime
and the plan without strips."""

from __future__ import annotations

import dataclasses
import functools
import json
import zipfile
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

from autotune.codegen.llvm.arrangement import nearest_text
from autotune.codegen.llvm.backend import compile_text
from autotune.codegen.loader import load
from autotune.compiler.open_sizes import OpenParts, open_image
from autotune.compiler.strip_lengths import drawn_values
from autotune.errors import ArtifactError
from autotune.frontend import open_model
from autotune.graph.ir import Graph
from autotune.graph.strips.open_rows import OpenRowStrips
from autotune.graph.strips.rows import RowStrips
from autotune.request import CompileRequest
from autotune.runtime.image_file import image_bytes, read_any_image, save
from autotune.runtime.open_code import _Nearest
from autotune.runtime.open_image import NEAREST, OpenImage, PlanChoice
from autotune.runtime.sized import SizedModel
from autotune.size_ranges import size_ranges
from tests.unit.compiler.open_models import FLOAT, model_of, weight

TARGET = CompileRequest(model="net.onnx", threads=1).wanted_target()
RANGES = {"N": (1, 2, 1), "H": (16, 96, 2), "W": (16, 48, 8)}
SIZES = ((1, 16, 16), (2, 22, 24), (1, 32, 16), (2, 46, 40), (1, 82, 24), (2, 96, 48))


@functools.cache
def network() -> onnx.ModelProto:
    """A thin image made wide, filtered by depth, made thin and added to itself."""
    node = helper.make_node
    nodes = [
        node("Conv", ["x", "w1"], ["thin"]),
        node("Conv", ["thin", "w2"], ["a"]),
        node("Relu", ["a"], ["b"]),
        node("Conv", ["b", "w3"], ["c"], pads=[1] * 4, group=16),
        node("Clip", ["c", "zero", "six"], ["d"]),
        node("Conv", ["d", "w4"], ["e"]),
        node("Add", ["e", "thin"], ["y"]),
    ]
    numbers = {"zero": np.float32(0), "six": np.float32(6)}
    weights = [
        weight("w1", 4, 3, 1, 1), weight("w2", 16, 4, 1, 1), weight("w3", 16, 1, 3, 3),
        weight("w4", 4, 16, 1, 1),
        *(onnx.numpy_helper.from_array(value, name) for name, value in numbers.items()),
    ]  # fmt: skip
    return model_of(nodes, {"x": (FLOAT, ["N", 3, "H", "W"])}, [None] * 4, weights)


def parts() -> OpenParts:
    opened = open_model(network(), None)
    assert not isinstance(opened, Graph)
    return OpenParts.of(opened, size_ranges(RANGES, opened.symbols), TARGET, None)


@functools.cache
def in_strips() -> OpenImage:
    """A program whose second plan runs at all sizes: a chain image by image, in strips of 8 rows
    but for the last one, of which there are two, or more."""
    opened = open_model(network(), None)
    assert not isinstance(opened, Graph)
    step = OpenRowStrips(estimate=RowStrips(cache_bytes=0), rows=8)
    ranges = size_ranges(RANGES, opened.symbols)
    return open_image(OpenParts.of(opened, ranges, TARGET, None), versions=(), strips=step)[0]


def test_strips_compute_what_onnx_runtime_does() -> None:
    """From a file, too, and in less memory than the whole at once."""
    image = in_strips()
    assert len(image.plans) == 2
    assert image.choice is not None
    assert image.choice.plans.all()
    kept = read_any_image(image_bytes(image))
    assert isinstance(kept, OpenImage)
    model, whole = SizedModel.of(kept), SizedModel.of(image.alone)
    peer = onnxruntime.InferenceSession(
        network().SerializeToString(), providers=["CPUExecutionProvider"]
    )
    for n, h, w in SIZES:
        x = np.random.default_rng(h).standard_normal((n, 3, h, w)).astype(np.float32)
        want = peer.run(None, {"x": x})[0]
        for made in (model, whole, model):
            np.testing.assert_allclose(made.run({"x": x})["y"], want, rtol=1e-3, atol=1e-4)
    shapes = ((2, 3, 96, 48),)
    least, most = (m._anywhere(shapes).image.arena_bytes for m in (model, whole))
    assert least < most


def test_a_program_of_an_earlier_format_is_refused(tmp_path: Path) -> None:
    """Its native code does not place values by itself."""
    kept, earlier = tmp_path / "net.model", tmp_path / "earlier.model"
    save(in_strips(), kept)
    with zipfile.ZipFile(kept) as archive, zipfile.ZipFile(earlier, "w") as other:
        for name in archive.namelist():
            data = archive.read(name)
            if name == "manifest.json":
                data = json.dumps({**json.loads(data), "format_version": 2}).encode()
            if name != "check":
                other.writestr(name, data)
    with pytest.raises(ArtifactError, match="of format version 2, this version reads 3; compile"):
        read_any_image(earlier)


def test_results_that_stay_in_the_cache_stay_whole() -> None:
    """Nothing of such images outgrows a cache; of a machine with a small one, some does."""
    opened = parts()
    drawn = drawn_values(opened.symbols, 8)
    assert OpenRowStrips().run(opened.graph, drawn) is None
    found = OpenRowStrips(estimate=RowStrips(cache_bytes=0), rows=2).run(opened.graph, drawn)
    assert found is not None
    assert found.numbers == (1,) * 8
    (cut,) = found.graphs
    assert any(node.op == "blocks" for node in cut.nodes)


def test_sizes_between_those_that_were_tried_take_the_plan_of_the_nearest() -> None:
    counts = np.array([[1, 2, 2], [1, 16, 16], [8, 4, 4]])
    choice = PlanChoice(counts=counts, plans=np.array([0, 1, 2]))
    library = load((compile_text(nearest_text(NEAREST), TARGET),), TARGET)
    native = _Nearest(choice, library)
    for at in np.random.default_rng(0).integers(0, 40, (50, 3)):
        assert native.number(at) == choice.at(at)
    near = [choice.at(np.array(at)) for at in ((1, 3, 3), (1, 12, 20), (7, 4, 5))]
    assert near == [0, 1, 2]


def test_a_choice_of_plans_that_are_not_there_is_refused() -> None:
    image = in_strips()
    assert image.choice is not None
    wrong = dataclasses.replace(image.choice, plans=image.choice.plans + 5)
    for bad in (dataclasses.replace(image, choice=wrong), dataclasses.replace(image, further=())):
        with pytest.raises(ArtifactError):
            read_any_image(image_bytes(bad))
