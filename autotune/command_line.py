"""The parser of command lines. In: arguments. Out: options, or one line: what is wrong."""

from __future__ import annotations

import argparse
import re
from typing import Any, NoReturn

from autotune.errors import ConfigError


class Parser(argparse.ArgumentParser):
    """An argument parser whose complaint is an InputError: one line, like every other."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        # What looks like -5s or -1% is a wrong value, not an option: the complaint shows it.
        self._negative_number_matcher = re.compile(r"-\.?\d")

    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"{message}; see {self.prog} --help")
