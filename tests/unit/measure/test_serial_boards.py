"""Boards at serial ports: frames among anything, boards that are silent, gone or of another kind,
and the firmware of examples/deploy on a simulated board behind a pty."""

from __future__ import annotations

import contextlib
import os
import random
import re
import struct
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import autotune
from autotune.cli import execute
from autotune.errors import ConfigError, DeviceError
from autotune.export.write import source_target
from autotune.graph.feeds import random_feeds
from autotune.measure.simulator import serial_port
from autotune.measure.simulator.serial_engine import SerialExecutor, SerialPlace, serial_board
from autotune.measure.simulator.serial_frames import FrameReader, SerialBoard, SerialFrame
from autotune.measure.simulator.serial_port import SerialPort
from autotune.measure.types import Status
from autotune.runtime.dense import dense_bytes
from autotune.runtime.image_file import image_bytes
from autotune.runtime.on_simulated_board import SerialModels
from autotune.target import host_target, load_target
from rpc_server.board.serial_place import serial_place
from tests.needs import needs
from tests.patience import PATIENCE_S
from tests.serial_firmware import simulated_board
from tests.unit.measure.test_simulated_cores import measured, small_model
from tests.unit.rpc_server.boards import BoardProcess

BOARD = SerialBoard(
    clock_hz=10**6, code=0x1000, code_bytes=4096, memory=0x2000, memory_bytes=4096, payload=256,
    name="paper",
)  # fmt: skip
HELLO = struct.pack("<6IH", 1, 10**6, 0x1000, 4096, 0x2000, 4096, 256) + b"paper"
Answer = Callable[[SerialFrame], bytes]


def some_frame(rng: random.Random) -> SerialFrame:
    payload = rng.randbytes(rng.randrange(40))
    return SerialFrame(type=rng.choice([b"h", b"r"]), number=rng.randrange(256), payload=payload)


@pytest.mark.parametrize("seed", range(20))
def test_frames_are_found_among_anything(seed: int) -> None:
    """Noise without a beginning costs no frame, however the bytes come."""
    rng = random.Random(seed)
    frames = [some_frame(rng) for _ in range(rng.randrange(5))]
    data = b"".join(rng.randbytes(9).replace(b"\xa5", b"") + f.encode() for f in frames) + b"end"
    step, reader = rng.randrange(1, 50), FrameReader()
    found = [f for at in range(0, len(data), step) for f in reader.feed(data[at : at + step])]
    assert found == frames


@pytest.mark.parametrize("seed", range(20))
def test_a_damaged_frame_is_none(seed: int) -> None:
    rng = random.Random(seed)
    frame = some_frame(rng)
    for place in range(len(frame.encode())):
        data = bytearray(frame.encode())
        data[place] ^= rng.randrange(1, 256)
        found = list(FrameReader().feed(bytes(data) + bytes(5000) + frame.encode()))
        assert found == [frame]


@contextlib.contextmanager
def paper_board(answer: Answer | None) -> Iterator[str]:
    """A pty's name, behind which `answer` is asked; None: nothing answers. An empty answer ends
    the board, as when it is unplugged."""
    ours, theirs = os.openpty()
    name = os.ttyname(theirs)

    def serve() -> None:
        reader = FrameReader()
        with contextlib.suppress(OSError):
            while data := os.read(ours, 4096):
                for frame in reader.feed(data) if answer else ():
                    given = answer(frame) if answer else b""
                    if not given:
                        return
                    os.write(ours, given)

    def serve_and_close() -> None:
        serve()
        os.close(theirs)
        os.close(ours)

    thread = threading.Thread(target=serve_and_close, daemon=True)
    keeper = os.open(name, os.O_RDWR | os.O_NOCTTY)
    thread.start()
    try:
        yield name
    finally:
        os.close(keeper)
        with contextlib.suppress(OSError):
            os.write(theirs, b"")


def reply(frame: SerialFrame, payload: bytes, kind: bytes = b"") -> bytes:
    kind = kind or frame.type.lower()
    return SerialFrame(type=kind, number=frame.number, payload=payload).encode()


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serial_port, "ANSWER_S", 0.05)


def test_a_board_that_answers_among_garbage() -> None:
    def noisy(frame: SerialFrame) -> bytes:
        late = reply(SerialFrame(type=b"H", number=frame.number ^ 1, payload=b""), b"late")
        return b"boot: hello\n\xa5\x5a\xff\xff" + late + reply(frame, HELLO)

    with paper_board(noisy) as name:
        assert serial_board(name, 115200) == SerialPlace(path=name, baud=115200, board=BOARD)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (None, "does not answer; is it powered, does it run serial_board.c, at 115200 baud"),
        (lambda _: b"\x00\xff login: ", "does not answer"),
        (lambda _: b"", "is gone"),
        (lambda f: reply(f, b"?"), "is none of ours: its description is too short"),
        (lambda f: reply(f, b"\x09" + HELLO[1:]), "it speaks version 9, expected 1"),
        (lambda f: reply(f, bytes([1]) + bytes(30)), "sizes or a name that cannot be"),
        (lambda f: reply(f, b"busy\x1b[2J", b"e"), "refuses: busy"),
    ],
)
def test_what_is_no_board_is_one_line(answer: Answer | None, message: str) -> None:
    with (
        paper_board(answer) as name,
        pytest.raises(DeviceError, match=re.escape(message)) as found,
    ):
        serial_board(name, 115200)
    said = str(found.value)
    assert name in said
    assert said.isprintable()


def test_a_board_that_is_unplugged_or_hangs_while_it_runs() -> None:
    def unplugged(frame: SerialFrame) -> bytes:
        return reply(frame, HELLO) if frame.type == b"H" else b""

    with paper_board(unplugged) as name, SerialPort(name, 115200) as port:
        port.hello()
        with pytest.raises(DeviceError, match=r"gone|does not answer"):
            port.read(BOARD, 0x2000, 4)

    def hangs(frame: SerialFrame) -> bytes:
        return b"." if frame.type == b"X" else reply(frame, HELLO)

    with (
        paper_board(hangs) as name,
        SerialPort(name, 115200) as port,
        pytest.raises(TimeoutError, match=r"no end after 0\.1 s; reset the board at"),
    ):
        port.run(0x1000, 0x2000, 0.1)


def test_options_that_cannot_be_meant() -> None:
    target = load_target("cortex-m4")
    assert serial_place(None, None, target) is None
    for text, simulator, named, message in (
        ("/dev/null", "qemu", target, "leave one of them out"),
        ("/dev/null", None, host_target(), "take --target cortex-m4"),
        ("/dev/null,fast", None, target, "expected --serial PORT or PORT,BAUD"),
        ("", None, target, "expected --serial PORT"),
    ):
        with pytest.raises(ConfigError, match=message):
            serial_place(text, simulator, named)
    for text, message in (
        ("/dev/null", "/dev/null is no serial port"),
        ("/nowhere", "cannot open the serial port /nowhere: No such file"),
    ):
        with pytest.raises(DeviceError, match=message):
            serial_place(text, None, target)


@pytest.fixture(scope="module")
def firmware(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """The pty of a simulated board that runs the firmware, and its process."""
    with simulated_board(tmp_path_factory.mktemp("firmware")) as found:
        yield found


@needs("cortex-m")
@pytest.mark.slow
def test_the_firmware_runs_candidates_and_models(
    firmware: tuple[str, subprocess.Popen[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serial_port, "ANSWER_S", PATIENCE_S / 10)
    port_name, _ = firmware
    place = serial_board(port_name, 115200)
    assert place.board.name == "mps2-an386"
    result = measured(SerialExecutor(place.encode()), "cortex-m4")
    assert result.status is Status.OK, result.error
    assert result.conditions.startswith("serial: ")
    model = small_model()
    here = autotune.compile(model)
    there = autotune.compile(model, target=source_target(load_target("cortex-m4")))
    feeds = random_feeds(here.inputs, 1)
    files = [image_bytes(there.image), *dense_bytes(here, feeds)]
    header = {"sizes": [len(f) for f in files], "repeats": 1}
    found, outputs = SerialModels(place.encode()).run_model(header, b"".join(files))
    (wanted,) = here.run(feeds).values()
    assert np.array_equal(np.frombuffer(outputs, np.int8), wanted.reshape(-1))
    assert len(found["kernels_s"]) == len(there.image.kernels)
    with SerialPort(port_name, 115200) as port:
        with pytest.raises(DeviceError, match="does not take such a request"):
            port.read(place.board, 0x4000_0000, 16)
        with pytest.raises(DeviceError, match="outside of this board's memory"):
            port.run(0x1000_0001, place.board.memory, 1.0)
        assert port.hello() == place.board


@pytest.mark.slow
@needs("cortex-m")
def test_a_serial_board_is_served_until_it_is_unplugged(
    firmware: tuple[str, subprocess.Popen[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The last test of the file: it ends the board."""
    port, process = firmware
    os.chmod(port, 0o666)
    (tmp_path / "small.tflite").write_bytes(small_model())
    options = ("--target", "cortex-m4", "--serial", port, "--accept-objects")
    with BoardProcess(executor="unused:Unused", options=options) as board:
        words = ["bench", str(tmp_path / "small.tflite"), "--device", board.url]
        assert execute(words) == 0
        assert "/serial cortex-m4" in capsys.readouterr().out
        process.kill()
        process.wait()
        assert execute(words) == 2
    said = capsys.readouterr().err
    assert port in said
    assert said.count("\n") == 1
