"""An auto-tuner and compiler for tensor programs.

    autotune.tune("resnet18.onnx", target="cpu", log="tuning.db", trials=500)
    model = autotune.compile("resnet18.onnx", target="cpu", log="tuning.db", threads=1)
    outputs = model.run({"x": array})

Importing the package, and running a saved model, loads no tuner, no database and no frontend.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

# Not lazy: the function must take the place of the module of the same name for good.
from autotune.compile import compile as compile

if TYPE_CHECKING:
    from autotune.db.store import TuningLog as TuningLog
    from autotune.runtime.artifact import load as load
    from autotune.runtime.host import pin as pin
    from autotune.target import Target as Target
    from autotune.tuner.api import tune as tune

    __version__: str

__all__ = ["Target", "TuningLog", "__version__", "compile", "load", "pin", "tune"]

_HOMES = {
    "Target": "autotune.target",
    "TuningLog": "autotune.db.store",
    "load": "autotune.runtime.artifact",
    "pin": "autotune.runtime.host",
    "tune": "autotune.tuner.api",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used."""
    if name == "__version__":
        value: Any = importlib.import_module("autotune.release").release()
    elif name in _HOMES:
        value = getattr(importlib.import_module(_HOMES[name]), name)
    else:
        raise AttributeError(f"module 'autotune' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))
