"""An auto-tuner and compiler for tensor programs.

    autotune.tune("resnet18.onnx", target="cpu", log="tuning.db", trials=500)
    model = autotune.compile("resnet18.onnx", target="cpu", log="tuning.db", threads=1)
    outputs = model.run({"x": array})

What a caller can mend is an InputError of one line. Importing the package, and running a saved
model, loads no tuner, no database and no frontend.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

# Not lazy: the function must take the place of the module of the same name for good.
from autotune.compile import compile as compile
from autotune.release import needing_compiler

if TYPE_CHECKING:
    from autotune.compiler.driver import partition as partition
    from autotune.db.store import TuningLog as TuningLog
    from autotune.errors import AutotuneError as AutotuneError
    from autotune.errors import InputError as InputError
    from autotune.fallback.model import StagedModel as StagedModel
    from autotune.runtime.artifact import load as load
    from autotune.runtime.host import pin as pin
    from autotune.runtime.model import CompiledModel as CompiledModel
    from autotune.runtime.sized import SizedModel as SizedModel
    from autotune.target import Target as Target
    from autotune.tuner.api import tune as tune
    from autotune.types import TensorType as TensorType

    __version__: str

__all__ = [
    "AutotuneError", "CompiledModel", "InputError", "SizedModel", "StagedModel", "Target",
    "TensorType", "TuningLog", "__version__", "compile", "load", "partition", "pin", "tune",
]  # fmt: skip

_HOMES = {
    "AutotuneError": "autotune.errors",
    "CompiledModel": "autotune.runtime.model",
    "InputError": "autotune.errors",
    "SizedModel": "autotune.runtime.sized",
    "StagedModel": "autotune.fallback.model",
    "Target": "autotune.target",
    "TensorType": "autotune.types",
    "TuningLog": "autotune.db.store",
    "load": "autotune.runtime.artifact",
    "partition": "autotune.compiler.driver",
    "pin": "autotune.runtime.host",
    "tune": "autotune.tuner.api",
}


def _public(name: str) -> Any:
    """Import a public name when it is first used."""
    if name == "__version__":
        value: Any = importlib.import_module("autotune.release").release()
    elif name in _HOMES:
        with needing_compiler():
            value = getattr(importlib.import_module(_HOMES[name]), name)
    else:
        raise AttributeError(f"module 'autotune' has no attribute {name!r}")
    globals()[name] = value
    return value


if not TYPE_CHECKING:  # type checkers know the names above, and that there are no others
    __getattr__ = _public


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))
