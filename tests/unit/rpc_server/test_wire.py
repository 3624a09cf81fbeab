"""Messages: what is written is read back, what is malformed is refused with one line."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.errors import DeviceError
from autotune.measure.types import MeasureRequest, MeasureResult, Status
from autotune.schedule.base import schedule_from_json
from rpc_server.wire import messages as wire
from rpc_server.wire.messages import WireError
from tests.unit.measure import fakes

STEP = {"step": "parallel", "loop": "o0_i"}


def submit() -> dict[str, Any]:
    """A good message as data, to be damaged."""
    data: dict[str, Any] = json.loads(wire.encode_submit([fakes.request(1), fakes.request(2)]))
    return data


def test_a_batch_is_read_back() -> None:
    plain = fakes.request(1)
    requests = tuple(
        MeasureRequest(
            task=plain.task, target=plain.target, schedule=schedule_from_json([STEP]), seed=n
        )
        for n in range(3)
    )
    assert wire.decode_submit(wire.encode_submit(requests)).requests == requests


def test_what_repeats_in_a_batch_is_sent_once() -> None:
    assert len(submit()["tasks"]) == len(submit()["targets"]) == 1


def test_progress_is_read_back() -> None:
    done = MeasureResult(status=Status.OK, times_s=(1.0, 0.5), device="here")
    progress = wire.JobProgress(results=(done,), done=True, failed="why")
    assert wire.decode_progress(wire.encode_progress(progress)) == progress


def test_collect_and_job_are_read_back() -> None:
    collect = wire.Collect(job="a", first=3, wait_s=1.5)
    assert wire.decode_collect(wire.encode_collect(collect)) == collect
    assert wire.decode_job(wire.encode_job("a")) == "a"


def test_an_error_message_is_raised() -> None:
    with pytest.raises(DeviceError, match="busy"):
        wire.decode_job(wire.encode_error("the board is busy"))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "JSON"),
        (b"\x80\x04K\x01.", "JSON"),
        (b"[]", "protocol version 3, got None"),
        (b'{"v": 1, "kind": "submit"}', "protocol version 3, got 1"),
        (b'{"v": 3, "kind": "job"}', "expected a submit message, got 'job'"),
        (b'{"v": 3, "kind": "submit"}', "KeyError 'tasks'"),
        (b"[" * 100_000, "JSON"),
    ],
)
def test_something_else_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(WireError, match=message.replace("[", r"\[")):
        wire.decode_submit(data)


def test_a_message_over_the_limit_is_refused() -> None:
    with pytest.raises(WireError, match="at most"):
        wire.decode_submit(b" " * (wire.MAX_MESSAGE_BYTES + 1))
    with pytest.raises(WireError, match="smaller batches"):
        wire.encode("job", {"job": "x" * wire.MAX_MESSAGE_BYTES})


DAMAGES: list[tuple[tuple[Any, ...], Any, str]] = [
    (("requests",), [], "1 to"),
    (("requests", 0, "task"), 7, "index out of range"),
    (("requests", 0, "task"), -1, "natural"),
    (("requests", 0, "seed"), "zero", "natural"),
    (("requests", 0, "schedule"), "now", "list"),
    (("requests", 0, "timing", "run_timeout_s"), 1e9, "deadlines"),
    (("requests", 0, "timing", "run_timeout_s"), "long", "deadlines"),
    (("requests", 0, "timing", "apart_s"), "long", "times and ratios"),
    (("requests", 0, "timing", "ages"), [["i0", "old", 0.0, 1.0]], "ages must be"),
    (("requests", 0, "timing", "max_repeats"), 1 << 40, "repeats"),
    (("requests", 0, "timing", "best_s"), "fast", "best_s"),
    (("requests", 0, "timing", "color"), 1, "color"),
    (("targets", 0, "cpu"), 'x" }\n', "name of letters"),
    (("targets", 0, "l1_bytes"), "big", "l1_bytes"),
    (("targets", 0, "threads"), 0, "threads"),
    (("tasks", 0, "values", 0, "name"), "i0) {\nret void", "name of letters"),
    (("tasks", 0, "values", 0, "name"), "o0", "differ"),
    (("tasks", 0, "values", 0, "name"), "i9", "unknown values"),
    (("tasks", 0, "values", 0, "shape"), [-4], "non-negative"),
    (("tasks", 0, "values", 0, "shape"), [1 << 50], "at most"),
    (("tasks", 0, "values", 0, "strides"), [-1], "layout"),
    (("tasks", 0, "values", 0, "strides"), [1, 1], "one entry per dimension"),
    (("tasks", 0, "values", 0, "halo"), [[-1, 0]], "layout"),
    (("tasks", 0, "values", 0, "dtype"), "float8", "dtype"),
    (("tasks", 0, "values", 1, "role"), "input", "exactly one output"),
    (("tasks", 0, "anchor"), 4, "anchor"),
]


@pytest.mark.parametrize(("path", "value", "message"), DAMAGES, ids=lambda p: str(p)[:40])
def test_a_malformed_batch_is_refused(path: tuple[Any, ...], value: Any, message: str) -> None:
    data = submit()
    where: Any = data
    for part in path[:-1]:
        where = where[part]
    where[path[-1]] = value
    with pytest.raises(WireError, match=message):
        wire.decode_submit(json.dumps(data).encode())


@pytest.mark.parametrize("step", [{"step": "levitate"}, {"step": "parallel", "height": 3}])
def test_a_step_that_a_board_does_not_know_fails_its_request_only(step: dict[str, Any]) -> None:
    data = submit()
    data["requests"][0]["schedule"] = [step]
    first, second = wire.decode_submit(json.dumps(data).encode()).requests
    assert isinstance(first, MeasureResult)
    assert first.status is Status.BUILD_ERROR
    assert isinstance(second, MeasureRequest)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("times_s", [], "status OK with the times"),
        ("times_s", [0.0], "status OK with the times"),
        ("times_s", [-1.0, 1.0], "status OK with the times"),
        ("times_s", [float("nan")], "status OK with the times"),
        ("times_s", [1.0] * (wire.MAX_REPEATS + 1), "at most"),
        ("status", "RUN_CRASH", "status RUN_CRASH with the times"),
        ("build_s", float("inf"), "finite"),
        ("run_s", "long", "TypeError"),
        ("error", "x" * (wire.MAX_TEXT + 1), "at most"),
        ("error", "a\0b", "NUL"),
        ("device", "\ud800", "surrogates"),
        ("device", 3, "TypeError"),
        ("max_error", None, "max_error"),
    ],
)
def test_results_that_no_measurement_gives_are_refused(
    field: str, value: Any, message: str
) -> None:
    done = MeasureResult(status=Status.OK, times_s=(1.0, 0.5), device="here")
    data = json.loads(wire.encode_progress(wire.JobProgress(results=(done,), done=True)))
    data["results"][0][field] = value
    with pytest.raises(WireError, match=message):
        wire.decode_progress(json.dumps(data).encode())


LEAVES = st.none() | st.booleans() | st.integers(-3, 1 << 70) | st.text(max_size=4) | st.floats()
JSON = st.recursive(
    LEAVES, lambda c: st.lists(c, max_size=3) | st.dictionaries(st.text(max_size=4), c, max_size=3)
)


@settings(max_examples=150)
@given(data=st.data(), junk=JSON)
def test_junk_anywhere_in_a_batch_is_refused_or_understood(data: st.DataObject, junk: Any) -> None:
    message = submit()
    where: Any = message
    while True:
        keys = list(where) if isinstance(where, dict) else list(range(len(where)))
        key = data.draw(st.sampled_from(keys))
        inner = where[key]
        if not isinstance(inner, dict | list) or not inner or data.draw(st.booleans()):
            where[key] = junk
            break
        where = inner
    try:
        decoded = wire.decode_submit(json.dumps(message).encode())
    except DeviceError:
        return
    assert all(isinstance(r, MeasureRequest | MeasureResult) for r in decoded.requests)
