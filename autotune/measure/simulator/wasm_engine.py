"""Engines that run WebAssembly here, as boards: their interface, and wasmtime. In: a module, and
bytes at addresses of its memory. Out: seconds that calls take, memory as they left it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from autotune.errors import DeviceError
from autotune.measure.timing import Sample


class WasmEngine(Protocol):
    """An engine that holds one module at a time."""

    def load(self, module: bytes, entry: str, blocks: Mapping[int, bytes]) -> None:
        """Instantiate a module whose function `entry` takes an address and a count of calls.
        Raises DeviceError where the engine refuses it."""
        ...

    def run(self, argument: int, calls: int) -> Sample:
        """Raises DeviceError where the code traps."""
        ...

    def read(self, at: int, count: int) -> bytes:
        """Bytes of the module's memory."""
        ...

    def close(self) -> None:
        """Let go of the module, and end what was started: no candidate leaves a process behind."""
        ...


class WasmtimeEngine:
    """wasmtime of this process (the extra `wasm`)."""

    def __init__(self) -> None:
        try:
            import wasmtime
        except ImportError:
            raise DeviceError(
                "this board runs WebAssembly in wasmtime, which is not installed: "
                "pip install autotune-compiler[wasm], or take --simulator node"
            ) from None
        self._wasmtime: Any = wasmtime
        config = wasmtime.Config()
        config.wasm_relaxed_simd = True
        config.parallel_compilation = False
        self._engine = wasmtime.Engine(config)
        self._store: Any = None
        self._memory: Any = None
        self._entry: Callable[..., None] | None = None

    def load(self, module: bytes, entry: str, blocks: Mapping[int, bytes]) -> None:
        wt = self._wasmtime
        self._store = wt.Store(self._engine)
        try:
            code = wt.Module(self._engine, module)
            given = [self._function(wanted) for wanted in code.imports]
            exports = wt.Instance(self._store, code, given).exports(self._store)
        except (wt.WasmtimeError, wt.Trap) as error:
            raise DeviceError(f"wasmtime refused the module: {_line(error)}") from None
        self._memory, self._entry = exports["memory"], exports[entry]
        for at, data in blocks.items():
            self._memory.write(self._store, data, at)

    def run(self, argument: int, calls: int) -> Sample:
        assert self._entry is not None
        busy, start = time.thread_time(), time.perf_counter()
        try:
            self._entry(self._store, argument, calls)
        except (self._wasmtime.WasmtimeError, self._wasmtime.Trap) as error:
            raise DeviceError(f"the code trapped: {_line(error)}") from None
        wall_s = max(time.perf_counter() - start, 1e-9)
        running_s = time.thread_time() - busy
        return Sample(wall_s, max(0.0, 1.0 - running_s / wall_s), running_s=running_s)

    def read(self, at: int, count: int) -> bytes:
        return bytes(self._memory.read(self._store, at, at + count))

    def close(self) -> None:
        self._store = self._memory = self._entry = None

    def _function(self, wanted: Any) -> Any:
        """A function of math.h, as Python has it."""
        name = str(wanted.name)
        plain = getattr(math, name, None) or getattr(math, name.removesuffix("f"))
        return self._wasmtime.Func(self._store, wanted.type, plain)


def _line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]
