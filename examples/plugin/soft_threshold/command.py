"""Threshold the numbers given, by the op's numpy reference."""

from __future__ import annotations

import argparse

import numpy as np

from autotune.command_line import Parser
from soft_threshold.parts import reference


def arguments(parser: Parser) -> None:
    parser.add_argument("number", type=float, nargs="+")
    parser.add_argument("--limit", type=float, default=0.5)


def run(options: argparse.Namespace) -> None:
    numbers = np.array(options.number)
    print(*reference(numbers, {"limit": options.limit}).tolist())
