"""Python runs this first in every process that has the emulated driver: the modules of CUDA are
changed when they are imported, and nothing is imported for those that never are."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

CHANGED = (
    "autotune.codegen.nvptx.backend",
    "autotune.measure.devices.cuda",
    "autotune.measure.devices.profile",
)


class Changes:
    """Finds what is to be changed, as Python does."""

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        spec = PathFinder.find_spec(name, path, target) if name in CHANGED else None
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def changed(module: ModuleType) -> None:
            execute(module)
            from tests.emulator import hooks

            hooks.change(module)

        spec.loader.exec_module = changed  # type: ignore[method-assign]
        return spec


sys.meta_path.insert(0, Changes)  # type: ignore[arg-type]
