"""A model whose kernels are Python callbacks: runs the executor without a code generator.

y = (x * c) + 1 over 2x3 floats: kernel `scale` writes the arena, kernel `shift` the output.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np

from autotune.memory import zeroed_block
from autotune.runtime.image import ARENA, CONSTANTS, WORKSPACE, LinkedKernel, ModelImage, Port
from autotune.runtime.model import CompiledModel
from autotune.runtime.session import Session
from autotune.target import Target, host_target
from autotune.types import Array, TensorType, dense_strides

SHAPE = (2, 3)
SYMBOLS = ("scale", "shift")
ARGS = (
    ((3, 0), (CONSTANTS, 64), (ARENA, 64), (WORKSPACE, 0)),
    ((ARENA, 64), (4, 0), (WORKSPACE, 0)),
)


class CallbackLibrary:
    """Addresses of Python functions, as if they were loaded from objects."""

    def __init__(self) -> None:
        self.runs: list[str] = []
        pointer, count = ctypes.c_void_p, ctypes.c_int64
        entry = ctypes.CFUNCTYPE(None, pointer)(self._entry)
        scale = ctypes.CFUNCTYPE(None, pointer, count)(self._runner("scale", _scale))
        shift = ctypes.CFUNCTYPE(None, pointer, count)(self._runner("shift", _shift))
        self._functions: dict[str, Any] = {
            "model_entry": entry,
            "scale_run": scale,
            "shift_run": shift,
        }

    def address(self, symbol: str) -> int:
        return ctypes.cast(self._functions[symbol], ctypes.c_void_p).value or 0

    def _entry(self, bases: int) -> None:
        table = ctypes.cast(bases, ctypes.POINTER(ctypes.c_void_p))
        self.runs.append("entry")
        for function, args in zip((_scale, _shift), ARGS, strict=True):
            function(*[(table[base] or 0) + offset for base, offset in args])

    def _runner(self, name: str, function: Callable[..., None]) -> Callable[[int, int], None]:
        def run(args: int, repeats: int) -> None:
            table = ctypes.cast(args, ctypes.POINTER(ctypes.c_void_p))
            self.runs.append(name)
            for _ in range(repeats):
                function(*[table[k] or 0 for k in range(4 if name == "scale" else 3)])

        return run


def image(constant: float = 3.0, target: Target | None = None) -> ModelImage:
    constants = zeroed_block(128)
    constants[64:68] = np.frombuffer(np.float32(constant).tobytes(), np.uint8)
    kind = TensorType(dtype="float32", shape=SHAPE)
    kernels = tuple(
        LinkedKernel(
            name=f"node/{symbol}",
            symbol=symbol,
            task_key=f"{symbol}-0",
            op=symbol,
            flops=6,
            source="default",
            args=args,
        )
        for symbol, args in zip(SYMBOLS, ARGS, strict=True)
    )
    return ModelImage(
        name="fake",
        target=target or host_target(),
        inputs=(Port(name="x", type=kind, base=3, offset_bytes=0, strides=dense_strides(SHAPE)),),
        outputs=(
            Port(name="y", type=kind, base=4, offset_bytes=0, strides=dense_strides(SHAPE)),
            Port(name="t", type=kind, base=ARENA, offset_bytes=64, strides=dense_strides(SHAPE)),
        ),
        output_bytes=(24,),
        kernels=kernels,
        arena_bytes=128,
        workspace_bytes=0,
        versions=(("autotune", "0"),),
        objects=(b"scale", b"shift", b"entry"),
        constants=constants,
    )


def session_of(model: CompiledModel) -> Session:
    """The session of a model that the next run will be in."""
    slot = model._pool.take()
    model._pool.give(slot)
    return slot.session


def _floats(address: int, count: int) -> Array:
    return np.ctypeslib.as_array((ctypes.c_float * count).from_address(address))


def _scale(x: int, c: int, out: int, _: int) -> None:
    _floats(out, 6)[:] = _floats(x, 6) * _floats(c, 1)[0]


def _shift(t: int, out: int, _: int) -> None:
    _floats(out, 6)[:] = _floats(t, 6) + 1
