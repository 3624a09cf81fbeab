"""Whole models on boards: sent once, run inside the bounds of candidates, right."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import autotune
from autotune.cli import execute
from autotune.db.latencies import kept, model_key, on_boards
from autotune.db.store import TuningLog
from autotune.errors import DeviceError
from autotune.frontend import load_model
from autotune.graph.feeds import random_feeds
from autotune.graph.pipeline import optimize
from autotune.measure.executor import DEFAULT_EXECUTOR
from autotune.runtime.dense import dense_bytes
from autotune.runtime.image_file import image_bytes
from rpc_server.board.file_store import FileStore
from rpc_server.client.models import ModelClient
from rpc_server.client.one_board import one_board
from rpc_server.wire import models as wire
from rpc_server.wire.checks import WireError
from rpc_server.wire.link import LinkLostError
from rpc_server.wire.models import PART_BYTES, FilePart
from tests.needs import needs
from tests.unit.rpc_server.boards import BoardProcess
from tests.unit.rpc_server.farms import running_farm

Captured = pytest.CaptureFixture[str]
DATA = np.random.default_rng(0).bytes(2 * PART_BYTES + 100)
NAME = hashlib.sha256(DATA).hexdigest()


@pytest.fixture(scope="module")
def board() -> Iterator[BoardProcess]:
    with BoardProcess(executor=DEFAULT_EXECUTOR, options=("--accept-objects",)) as process:
        yield process


def test_a_model_on_a_board_gives_what_it_gives_here(
    board: BoardProcess, tmp_path: Path, capsys: Captured
) -> None:
    words = ["zoo:tiny", "--random", "--log", str(tmp_path / "no.db")]
    for place, more in (("here", []), ("there", ["--device", board.url])):
        assert execute(["run", *words, *more, "-o", str(tmp_path / f"{place}.npz")]) == 0
    here, there = np.load(tmp_path / "here.npz"), np.load(tmp_path / "there.npz")
    np.testing.assert_array_equal(here["y"], there["y"])
    assert "MiB at most" in capsys.readouterr().out


def test_it_is_timed_whole_and_by_kernel_and_sent_once(
    board: BoardProcess, tmp_path: Path, capsys: Captured
) -> None:
    path = tmp_path / "tiny.model"
    autotune.compile("zoo:tiny").save(path)
    said = []
    for _ in range(2):
        assert execute(["bench", str(path), "--device", board.url, "--repeats", "5"]) == 0
        said.append(capsys.readouterr().out)
    assert "median of 5 runs" in said[0]
    assert "max_pool2d" in said[0]
    assert "nothing sent, it had the model" in said[1]


def test_the_log_keeps_what_a_board_took_where_one_is_named(
    board: BoardProcess, tmp_path: Path, capsys: Captured
) -> None:
    log, words = tmp_path / "log.db", ["bench", "zoo:tiny", "--device", board.url]
    assert execute([*words, "--repeats", "4", "--log", str(log)]) == 0
    key = model_key(optimize(load_model("zoo:tiny")))
    with TuningLog(log, read_only=True) as read:
        (found,) = on_boards(read, key, "another")
        assert on_boards(read, "another", "zoo:tiny") == [found]
        assert kept(read, key, found.target_key) == []  # before and after tuning it is nothing
    assert (found.before, len(found.after), found.before_s) == ((), 4, None)
    assert found.kernels_after_s
    assert "median of 4 runs" in capsys.readouterr().out


@needs("opencl")
@pytest.mark.slow  # the driver compiles for minutes beside other load
def test_a_board_of_opencl_runs_whole_models(tmp_path: Path, capsys: Captured) -> None:
    with BoardProcess(
        executor=DEFAULT_EXECUTOR, options=("--accept-objects", "--target", "opencl")
    ) as process:
        words = ["--device", process.url, "--log", str(tmp_path / "log.db")]
        assert execute(["run", "zoo:tiny", "--random", *words[:2], "-o", str(tmp_path / "y")]) == 0
        assert execute(["bench", "zoo:tiny", "--repeats", "3", *words]) == 0
    assert "median of 3 runs" in capsys.readouterr().out
    with TuningLog(tmp_path / "log.db", read_only=True) as read:
        (found,) = on_boards(read, "", "zoo:tiny")
    assert found.target_key.startswith("opencl")
    model = autotune.compile("zoo:tiny")
    expected = model.run(random_feeds(model.inputs, 0))["y"]
    (file,) = tmp_path.glob("y*")
    np.testing.assert_allclose(np.load(file)["y"], expected, rtol=1e-3, atol=1e-5)


def test_code_that_crashes_ends_the_run_and_not_the_board(board: BoardProcess) -> None:
    model = autotune.compile("zoo:tiny")
    feeds = dense_bytes(model, random_feeds(model.inputs, 0))
    with one_board(board.url) as runner:
        client = ModelClient(runner)
        with pytest.raises(DeviceError, match=r"does not run on .*not a compiled model"):
            client.run(b"no model", feeds, 1)
        with pytest.raises(DeviceError, match=r"does not run on .*expected 1 inputs, got 0"):
            client.run(image_bytes(model.image), [], 1)
        run = client.run(image_bytes(model.image), feeds, 3)
    assert len(run.outcome.times_s) == 3
    assert len(run.outcome.kernels_s) == len(model.image.kernels)
    assert run.outcome.peak_bytes > 1 << 20


@pytest.mark.slow
def test_a_tracker_lends_a_board_for_a_model(tmp_path: Path, capsys: Captured) -> None:
    with running_farm(tmp_path, 1, DEFAULT_EXECUTOR, ("--accept-objects",)) as farm:
        assert execute(["bench", "zoo:tiny", "--brief", "--device", farm.url]) == 0
        farm.in_service()
    assert "median of 30 runs" in capsys.readouterr().out


def test_a_board_that_takes_no_objects_takes_no_models(capsys: Captured) -> None:
    with BoardProcess(executor=DEFAULT_EXECUTOR) as plain:
        assert execute(["bench", "zoo:tiny", "--device", plain.url]) == 2
    error = capsys.readouterr().err
    assert "start it with --accept-objects" in error


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--device", "rpc://127.0.0.1:1"], "cannot reach rpc://127.0.0.1:1"),
        (["--device", "board"], "expected the device rpc://HOST:PORT or tracker"),
        (["--certs", "certs"], "--certs is for --device of a board"),
        (["--device", "rpc://127.0.0.1:1", "--pin", "0"], "--pin is for this machine"),
        (["--device", "rpc://127.0.0.1:1", "--profile"], "are for this machine"),
    ],
)
def test_what_cannot_be_meant_is_one_line(words: list[str], line: str, capsys: Captured) -> None:
    assert execute(["bench", "zoo:tiny", *words]) == 2
    error = capsys.readouterr().err
    assert line in error
    assert error.count("\n") == 1


# ------------------------------------------------------------------------------------------ files


def parts() -> list[FilePart]:
    starts = range(0, len(DATA), PART_BYTES)
    return [
        FilePart(digest=NAME, size=len(DATA), at=n, data=DATA[n : n + PART_BYTES]) for n in starts
    ]


def test_a_file_goes_on_from_where_it_ended_and_only_for_its_client() -> None:
    store = FileStore()
    first, second, third = parts()
    assert store.add("alice", first) == PART_BYTES
    assert store.add("alice", third) == PART_BYTES  # not its turn
    assert store.add("bob", second) == 0
    with pytest.raises(WireError, match="there is no file"):
        store.read(NAME)
    assert store.add("alice", second) == 2 * PART_BYTES
    assert store.add("alice", third) == len(DATA)
    assert store.read(NAME) == DATA
    assert store.add("bob", first) == len(DATA)
    assert store.part(NAME, 2 * PART_BYTES).data == DATA[2 * PART_BYTES :]
    store.close()


def test_bytes_of_another_digest_are_not_kept() -> None:
    store = FileStore()
    wrong = FilePart(digest=NAME, size=5, at=0, data=b"other")
    with pytest.raises(WireError, match="send it again"):
        store.add("alice", wrong)
    with pytest.raises(WireError, match="there is no file"):
        store.size(NAME)
    assert store.add("alice", parts()[0]) == PART_BYTES
    store.close()


def test_what_was_used_longest_ago_makes_room() -> None:
    store = FileStore(room_bytes=25)
    names = [store.put(bytes([n]) * 10) for n in range(2)]
    store.read(names[0])
    names.append(store.put(b"c" * 10))
    with pytest.raises(WireError, match="there is no file"):
        store.read(names[1])
    assert store.read(names[0]) == bytes(10)
    with pytest.raises(WireError, match="has room for 25 bytes of files, not 26"):
        store.put(b"d" * 26)
    store.close()


class LossyRunner:
    """A runner whose link breaks before every third message."""

    def __init__(self) -> None:
        self.store = FileStore()
        self.messages = 0

    def ask(self, name: str, payload: bytes) -> bytes:
        self.messages += 1
        if self.messages % 3 == 0:
            raise LinkLostError("gone")
        assert name == "upload"
        return wire.encode_held(self.store.add("me", wire.decode_part(payload)))

    def came_back(self) -> bool:
        return True


def test_after_a_lost_link_a_file_is_not_sent_from_its_beginning() -> None:
    runner = LossyRunner()
    client = ModelClient(runner)  # type: ignore[arg-type]
    client._again(lambda: client._send(NAME, DATA))
    assert runner.store.read(NAME) == DATA
    assert client._sent == len(DATA)
    runner.store.close()


@pytest.mark.parametrize(
    "change",
    [
        {"digest": "00"}, {"size": -1}, {"size": 1 << 40}, {"at": 7}, {"data": "?"},
        {"data": "AAAA" * PART_BYTES}, {"at": None}, {"digest": None},
    ],
)  # fmt: skip
def test_malformed_parts_are_refused(change: dict[str, object]) -> None:
    fields = {"digest": NAME, "size": 3, "at": 0, "data": "AAAA", **change}
    with pytest.raises(WireError):
        wire.decode_part(wire.encode("part", fields))


def test_outcomes_that_no_run_has_are_refused() -> None:
    fields = {
        "times_s": [1e-12], "kernels_s": [], "outputs": [], "peak_bytes": 0,
        "temperature_c": None, "clock_hz": None,
    }  # fmt: skip
    message = wire.encode("outcome", {"done": True, "failed": "", "outcome": fields})
    with pytest.raises(WireError, match="malformed outcome"):
        wire.decode_outcome(message)
