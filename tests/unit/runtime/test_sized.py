"""A model of open sizes, by how it keeps what is compiled; nothing is compiled here."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import re
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from autotune.errors import ArtifactError, ClosedError, ConfigError, FeedError
from autotune.runtime.model import CompiledModel
from autotune.runtime.sized import SizedModel
from autotune.runtime.specialized import Specialized
from autotune.size_ranges import SizedType, SizeRange, size_ranges
from autotune.types import Array, TensorType, dense_strides
from tests.unit.runtime import fakes

IDS = SizedType(dtype="float32", shape=("B", "S"))
INPUTS = {"ids": IDS, "mask": SizedType(dtype="float32", shape=("B", "S", 2))}


class Maker:
    """Compiles models that return their first input; notes for which sizes, and what was kept."""

    def __init__(self, nbytes: int = 10) -> None:
        self.sizes: list[dict[str, int]] = []
        self.kept: list[list[Any]] = []
        self.nbytes = nbytes

    def __call__(self, sizes: Mapping[str, int], kept: Iterable[Specialized]) -> Specialized:
        self.sizes.append(dict(sizes))
        self.kept.append([each.parts for each in kept])
        return Specialized(model=same(sizes), nbytes=self.nbytes, parts=len(self.sizes))


class NoCode(fakes.CallbackLibrary):
    def _entry(self, bases: int) -> None:
        pass


def same(sizes: Mapping[str, int]) -> CompiledModel:
    """A model whose one output is its first input, read where it lies."""
    image = fakes.image()
    ports = [
        dataclasses.replace(
            image.inputs[0], name=name, type=kind.at(sizes), base=3 + number,
            strides=dense_strides(kind.at(sizes).shape),
        )
        for number, (name, kind) in enumerate(INPUTS.items())
    ]  # fmt: skip
    output = dataclasses.replace(ports[0], name="y")
    image = dataclasses.replace(image, inputs=tuple(ports), outputs=(output,), output_bytes=())
    return CompiledModel(image, NoCode())


def sized(maker: Callable[..., Specialized], **ranges: tuple[int, ...]) -> SizedModel:
    given: Any = ranges
    outputs = {"y": IDS}
    found = size_ranges(given, ("B", "S"))
    return SizedModel("net", inputs=INPUTS, outputs=outputs, ranges=found, specialize=maker)


def feeds(batch: int, length: int) -> dict[str, Array]:
    ids = np.random.default_rng(batch).standard_normal((batch, length)).astype(np.float32)
    return {"ids": ids, "mask": np.zeros((batch, length, 2), np.float32)}


def test_a_set_of_sizes_is_compiled_when_it_is_first_met() -> None:
    maker = Maker()
    model = sized(maker)
    for batch, length in [(1, 4), (2, 4), (1, 4), (2, 4), (2, 8)]:
        given = feeds(batch, length)
        np.testing.assert_array_equal(model.run(given)["y"], given["ids"])
    assert maker.sizes == [{"B": 1, "S": 4}, {"B": 2, "S": 4}, {"B": 2, "S": 8}]
    assert maker.kept == [[], [1], [1, 2]]
    assert model.symbols == ("B", "S")
    assert str(model.inputs["mask"]) == "float32[B,S,2]"
    assert repr(model).startswith("<SizedModel 'net': ids: float32[B,S], mask: float32[B,S,2] ->")
    assert "compiled when it is first met" in model.notes[0]


def test_outputs_and_lists_as_in_any_model() -> None:
    model, given = sized(Maker()), feeds(1, 2)
    y = np.zeros((1, 2), np.float32)
    assert model.run(given, ["y"], {"y": y})["y"] is y
    np.testing.assert_array_equal(y, given["ids"])
    lists = {"ids": [[1, 2]], "mask": given["mask"]}
    np.testing.assert_array_equal(model.run(lists)["y"], [[1, 2]])


def test_the_sizes_used_least_recently_are_dropped() -> None:
    maker = Maker(nbytes=10)
    model = sized(maker)
    model.limit_bytes = 25
    for length in (1, 2, 1, 3, 1, 2):
        model.run(feeds(1, length))
    assert [sizes["S"] for sizes in maker.sizes] == [1, 2, 3, 2]
    model.limit_bytes = 5  # the last one stays whatever it takes
    model.run(feeds(1, 9))
    model.run(feeds(1, 9))
    assert [sizes["S"] for sizes in maker.sizes] == [1, 2, 3, 2, 9]


@pytest.mark.parametrize(
    ("shapes", "words"),
    [
        (((1, 8), (1, 7, 2)), "input 'mask' dimension 1 (S) is 7, input 'ids' says 8"),
        (
            ((1, 6), (1, 6, 2)),
            "input 'ids' dimension 1 (S) is 6, the range is 4 to 16 in steps",
        ),
        (((1, 20), (1, 20, 2)), "input 'ids' dimension 1 (S) is 20, the range is 4 to 16"),
        (((0, 4), (0, 4, 2)), "input 'ids' dimension 0 (B) is 0, the range is 1 or more"),
        (((1, 4), (1, 4, 3)), "input 'mask' dimension 2 is 3, expected 2: float32[B,S,2]"),
        (((1, 4), (1, 4)), "input 'mask' has 2 dimensions, expected 3: float32[B,S,2]"),
    ],
)
def test_sizes_that_do_not_fit_are_one_line(
    shapes: tuple[tuple[int, ...], ...], words: str
) -> None:
    maker = Maker()
    model = sized(maker, S=(4, 16, 4))
    given = {n: np.zeros(s, np.float32) for n, s in zip(INPUTS, shapes, strict=True)}
    with pytest.raises(FeedError, match="^" + re.escape(words)):
        model.run(given)
    assert maker.sizes == []


def test_names_that_do_not_fit() -> None:
    with pytest.raises(FeedError, match="expected inputs ids, mask; got ids"):
        sized(Maker()).run({"ids": np.zeros((1, 4), np.float32)})


def test_a_range_of_a_symbol_that_is_not_there() -> None:
    with pytest.raises(ConfigError, match=r"range is given for 'T', .* inputs are B, S"):
        size_ranges({"T": (1, 2)}, ("B", "S"))
    assert str(size_ranges({"B": (1, 8)}, ("B",))["B"]) == "1 to 8"
    assert 10**9 in SizeRange()


def test_sizes_can_be_compiled_ahead() -> None:
    maker = Maker()
    model = sized(maker, S=(4, 16))
    ahead = model.specialize({"S": 8, "B": 2})
    assert ahead.inputs["mask"] == TensorType(dtype="float32", shape=(2, 8, 2))
    model.run(feeds(2, 8))
    assert len(maker.sizes) == 1
    for given, words in [
        ({"S": 8}, "sizes must be given for B, S, got S"),
        ({"S": -1, "B": 1}, "sizes['S'] must be at least 0, got -1"),
        ({"S": "8", "B": 1}, "sizes['S'] must be a whole number"),
        ([8], "sizes must be a dict by symbol"),
    ]:
        with pytest.raises(ConfigError, match=re.escape(words)):
            model.specialize(given)  # type: ignore[arg-type]
    with pytest.raises(FeedError, match=re.escape("sizes['S'] is 17, the range is 4 to 16")):
        model.specialize({"S": 17, "B": 1})


def test_sizes_that_are_there_run_while_others_are_compiled() -> None:
    compiling, go_on = threading.Event(), threading.Event()
    maker = Maker()

    def slow(sizes: Mapping[str, int], kept: Iterable[Specialized]) -> Specialized:
        if sizes["S"] == 8:
            compiling.set()
            assert go_on.wait(60)
        return maker(sizes, kept)

    model = sized(slow)
    model.run(feeds(1, 4))
    with ThreadPoolExecutor(2) as threads:
        runs = [threads.submit(model.run, feeds(1, 8)) for _ in range(2)]
        assert compiling.wait(60)
        model.run(feeds(1, 4))
        go_on.set()
        for run in runs:
            run.result(60)
    assert [sizes["S"] for sizes in maker.sizes] == [4, 8], "two threads compiled the same sizes"


def test_a_closed_model_is_one_clear_error() -> None:
    with sized(Maker()) as model:
        inner = model.specialize({"B": 1, "S": 4})
    model.close()
    for use in (lambda: model.run(feeds(1, 4)), lambda: model.specialize({"B": 1, "S": 4})):
        with pytest.raises(ClosedError, match=r"^the model 'net' is closed; compile it again"):
            use()
    with pytest.raises(ClosedError):
        inner.run(feeds(1, 4))


@pytest.mark.parametrize("use", [lambda m: m.save("x"), copy.deepcopy, pickle.dumps])
def test_without_one_program_nothing_is_saved(use: Callable[[SizedModel], object]) -> None:
    with pytest.raises(ArtifactError, match=r"^'net' is compiled for each set of sizes that it"):
        use(sized(Maker()))
