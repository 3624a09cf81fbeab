"""A board at a serial port in place of a simulator. In: code for its core. Out: the board's memory
as the code left it, and cycles that it counted itself."""

from __future__ import annotations

import dataclasses
import json

from autotune.errors import BuildError
from autotune.measure.simulator.cores import Core, core_of
from autotune.measure.simulator.costs import Counted
from autotune.measure.simulator.executor import SimulatedExecutor
from autotune.measure.simulator.image import ENTRY_OFFSET, segments
from autotune.measure.simulator.memory import CoreMemory
from autotune.measure.simulator.serial_frames import SerialBoard
from autotune.measure.simulator.serial_port import BoardGoneError, SerialPort
from autotune.target import Target

_ALIGNMENT = 64


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SerialPlace:
    """A port with its board, as executors in other processes are told of it."""

    path: str
    baud: int
    board: SerialBoard

    def encode(self) -> str:
        return json.dumps(dataclasses.asdict(self), separators=(",", ":"))

    @staticmethod
    def decode(text: str) -> SerialPlace:
        data = json.loads(text)
        return SerialPlace(**{**data, "board": SerialBoard(**data["board"])})


class SerialEngine:
    """Runs code on the board."""

    name = "serial"
    boot = False

    def __init__(self, place: SerialPlace) -> None:
        self._place = place

    def core(self, target: Target) -> Core:
        """The target's core, where this board has memory. Raises ConfigError."""
        board = self._place.board
        return dataclasses.replace(
            core_of(target), name=f"board {board.name}", clock_hz=float(board.clock_hz),
            code=board.code, memory=board.memory, memory_bytes=board.memory_bytes,
            apart=_ALIGNMENT, stack_bytes=0,
        )  # fmt: skip

    def check(self, core: Core) -> None:  # noqa: ARG002
        """Raises DeviceError where there is no such board at the port."""
        with SerialPort(self._place.path, self._place.baud) as port:
            self._board(port)

    def run(
        self, core: Core, image: bytes, memory: CoreMemory, timeout_s: float
    ) -> tuple[tuple[Counted, ...], bytes]:
        """Sections between marks, and the memory as far as it is asked for. Raises DeviceError
        where the board refuses, BoardGoneError where it does not answer, TimeoutError."""
        with SerialPort(self._place.path, self._place.baud) as port:
            board = self._board(port)
            for at, data in segments(image):
                if at + len(data) > board.code + board.code_bytes:
                    raise BuildError(
                        f"the code takes {at + len(data) - board.code} bytes, {board.name} has "
                        f"{board.code_bytes}"
                    )
                port.write(board, at, data)
            for at, data in memory.parts():
                port.write(board, at, data)
            entry = core.code + ENTRY_OFFSET + core.is_arm
            cycles = port.run(entry, memory.arguments, timeout_s)
            left = bytearray(memory.nbytes)
            for at, count in memory.asked_for():
                part = port.read(board, at, count)
                left[at - memory.base : at - memory.base + count] = part
        sections = [Counted(instructions=0, cycles=0)]
        sections += [Counted(instructions=0, cycles=count) for count in cycles]
        return tuple(sections), bytes(left)

    def _board(self, port: SerialPort) -> SerialBoard:
        board = port.hello()
        if board != self._place.board:
            raise BoardGoneError(
                f"another board is at {self._place.path} now ({board.name}); start the server "
                "again"
            )
        return board


class SerialExecutor(SimulatedExecutor):
    """Candidates on a board at a serial port; `place`: a SerialPlace as text."""

    def __init__(self, place: str) -> None:
        super().__init__(SerialEngine(SerialPlace.decode(place)))


def serial_board(path: str, baud: int) -> SerialPlace:
    """What is at a port. Raises DeviceError."""
    with SerialPort(path, baud) as port:
        return SerialPlace(path=path, baud=baud, board=port.hello())
