"""Every backend, registered. Asking `BACKENDS` for one imports this; running code does not."""

import autotune.codegen as _room
from autotune.registry import load_folder

load_folder(_room.__name__, list(_room.__path__))
