"""`autotune.compile`: schedules from the log or without one, targets, artifacts."""

from __future__ import annotations

import dataclasses
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import autotune
import cost_model
from autotune.compiler.driver import compile_graph
from autotune.db.store import TuningLog
from autotune.db.types import Record
from autotune.errors import ArtifactError, MissingLogWarning, ModelError, TargetError
from autotune.graph.feeds import random_feeds
from autotune.graph.pipeline import optimize
from autotune.machine import Machine
from autotune.measure.types import MeasureResult, Status
from autotune.placement.partition import partition
from autotune.runtime.model import CompiledModel
from autotune.schedule import schedule_from_json
from autotune.schedule.base import Schedule
from autotune.target import host_target, load_target
from autotune.types import Task
from search_spaces.params import Config
from search_spaces.rules import rule_for
from tests.unit.compiler.graphs import mlp

TARGET = host_target()


def records(tasks: Sequence[Task], schedule: Schedule | None = None) -> list[Record]:
    """An OK record of every task: its default config, or a schedule given."""
    out = []
    for task in tasks:
        rule = rule_for(task, TARGET)
        config = cost_model.default(task, Machine.of(TARGET), rule)
        out.append(
            Record(
                task=task,
                target=TARGET,
                rule=rule.name,
                config=config,
                schedule=rule.schedule(task, TARGET, config) if schedule is None else schedule,
                result=MeasureResult(status=Status.OK, times_s=(1e-6,), device="here"),
            )
        )
    return out


def tasks_of(width: int) -> tuple[Task, ...]:
    return tuple(partition(optimize(mlp(2, width))).weights())


def older(record: Record) -> Record:
    """As it was before the space got the param whose first choice it has."""
    params = rule_for(record.task, TARGET).space(record.task, TARGET).params
    later = next(p.name for p in reversed(params) if record.config[p.name] == p.choices[0])
    items = tuple(item for item in record.config.items if item[0] != later)
    return dataclasses.replace(record, config=Config(items))


@pytest.fixture
def onnx_file(tmp_path: Path) -> Path:
    """y = relu(x @ w) over a batch whose size the file leaves open."""
    weights = np.random.default_rng(0).standard_normal((8, 4)).astype(np.float32)
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "w"], ["t"]),
            helper.make_node("Relu", ["t"], ["y"]),
        ],
        "net",
        [info("x", onnx.TensorProto.FLOAT, ["batch", 8])],
        [info("y", onnx.TensorProto.FLOAT, ["batch", 4])],
        [numpy_helper.from_array(weights, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    onnx.save(model, str(tmp_path / "net.onnx"))
    return tmp_path / "net.onnx"


def test_an_onnx_file_compiles_without_a_log(onnx_file: Path) -> None:
    model = autotune.compile(onnx_file, shapes={"x": (3, 8)})
    assert {k.source for k in model.image.kernels} == {"default"}
    x = np.ones((3, 8), np.float32)
    weights = numpy_helper.to_array(onnx.load(str(onnx_file)).graph.initializer[0])
    want = np.maximum(x @ weights, 0)
    np.testing.assert_allclose(model.run({"x": x})["y"], want, rtol=1e-5, atol=1e-6)


def test_an_open_dimension_is_a_symbol_of_the_model(onnx_file: Path) -> None:
    model = autotune.compile(onnx_file)
    assert isinstance(model, autotune.SizedModel)
    assert model.symbols == ("batch",)
    with pytest.raises(ModelError, match="batch"):
        autotune.partition(onnx_file)


def test_a_missing_log_is_empty_and_stays_missing(onnx_file: Path, tmp_path: Path) -> None:
    log = tmp_path / "none.db"
    with pytest.warns(MissingLogWarning, match=re.escape(f"there is no tuning log {log}; every")):
        model = autotune.compile(onnx_file, log=log, shapes={"x": (3, 8)})
    assert {k.source for k in model.image.kernels} == {"default"}
    assert not log.exists()


def test_an_unknown_target_is_an_error(onnx_file: Path) -> None:
    with pytest.raises(TargetError, match="abacus"):
        autotune.compile(onnx_file, target="abacus")


@pytest.mark.parametrize(
    ("threads", "words"), [(0, "at least 1, got 0"), (10**8, "at most 1024, got 100000000")]
)
def test_no_threads_and_absurdly_many_are_errors(
    threads: int, words: str, onnx_file: Path
) -> None:
    with pytest.raises(TargetError, match=f"threads must be {words}"):
        autotune.compile(onnx_file, threads=threads)


def test_where_there_are_no_threads_only_one_is_taken(onnx_file: Path) -> None:
    message = "kernels for wasm32-unknown-unknown run on one thread; threads must be 1 there"
    with pytest.raises(TargetError, match=message):
        autotune.compile(onnx_file, target="wasm32", threads=2)


def test_threads_and_targets_are_taken_over(onnx_file: Path) -> None:
    shapes = {"x": (3, 8)}
    named = autotune.compile(onnx_file, target="cpu", threads=2, shapes=shapes)
    given = autotune.compile(onnx_file, target=TARGET.with_threads(2), shapes=shapes)
    assert named.image.target == given.image.target == host_target(2)


def test_the_tasks_own_record_is_used(tmp_path: Path) -> None:
    with TuningLog(tmp_path / "log.db") as log:
        log.append(records(tasks_of(width=32)))
        model = compile_graph(mlp(2, 32), TARGET, log)
    assert {k.source for k in model.image.kernels} == {"record"}
    assert model.notes == ()


def test_a_similar_tasks_record_is_used(tmp_path: Path) -> None:
    with TuningLog(tmp_path / "log.db") as log:
        log.append(records(tasks_of(width=32)))
        model = compile_graph(mlp(2, 64), TARGET, log)
    assert {k.source for k in model.image.kernels} == {"nearest"}


def test_a_similar_tasks_record_from_before_a_param_came_is_used(tmp_path: Path) -> None:
    with TuningLog(tmp_path / "log.db") as log:
        log.append(older(r) for r in records(tasks_of(width=32)))
        model = compile_graph(mlp(2, 64), TARGET, log)
    assert {k.source for k in model.image.kernels} == {"nearest"}


def test_records_of_another_op_are_not_used(tmp_path: Path) -> None:
    with TuningLog(tmp_path / "log.db") as log:
        log.append(records(tasks_of(width=32)))
        model = autotune.compile("zoo:tiny", log=log)
    sources = {k.op: k.source for k in model.image.kernels}
    assert sources["conv2d"] == "default"


def test_a_stale_record_is_replaced_and_noted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stale = schedule_from_json([{"step": "vectorize", "loops": ["gone"]}])
    tasks = tasks_of(width=32)
    with TuningLog(tmp_path / "log.db") as log:
        log.append(records(tasks, stale))
        model = compile_graph(mlp(2, 32), TARGET, log)
    assert len(model.notes) == len(tasks)
    assert "gone" in model.notes[0]
    assert [r.getMessage() for r in caplog.records] == list(model.notes)
    feeds = random_feeds(model.inputs, 0)
    np.testing.assert_array_equal(
        model.run(feeds)["y"], compile_graph(mlp(2, 32), TARGET).run(feeds)["y"]
    )


def test_a_saved_model_gives_the_same_outputs(tmp_path: Path) -> None:
    model = compile_graph(mlp(2), TARGET)
    model.save(tmp_path / "m.atm")
    again: CompiledModel = autotune.load(tmp_path / "m.atm")
    feeds = random_feeds(model.inputs, 3)
    np.testing.assert_array_equal(again.run(feeds)["y"], model.run(feeds)["y"])


def test_a_saved_model_runs_without_the_compiler(tmp_path: Path) -> None:
    compile_graph(mlp(2), TARGET).save(tmp_path / "m.atm")
    script = (
        "import sys\n"
        "for name in ('xgboost', 'sqlalchemy', 'onnx', 'rich', 'typer', 'rpyc'):\n"
        "    sys.modules[name] = None\n"
        "import autotune, numpy\n"
        f"model = autotune.load({str(tmp_path / 'm.atm')!r})\n"
        "print(model.run({'x': numpy.zeros((3, 8), 'float32')})['y'].shape)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr) == ("(3, 8)\n", "")


def test_a_model_for_another_cpu_is_compiled_and_saved_but_not_run(tmp_path: Path) -> None:
    foreign = load_target("cortex-a72" if "x86" in TARGET.triple else "x86-64-v3")
    model = compile_graph(mlp(2), foreign)
    model.save(tmp_path / "m.atm")
    with pytest.raises(ArtifactError, match=r"is built for .*, this CPU is"):
        model.run(random_feeds(model.inputs, 0))
    with pytest.raises(ArtifactError, match=r"is built for .*, this CPU is"):
        autotune.load(tmp_path / "m.atm")
