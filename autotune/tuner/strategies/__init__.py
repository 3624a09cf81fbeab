"""Strategies: every module of this folder registers one in `STRATEGIES`."""

from autotune.registry import load_folder
from autotune.tuner.strategies.base import STRATEGIES, Outcome, Setting, Strategy

load_folder(__name__, list(__path__))

__all__ = ["STRATEGIES", "Outcome", "Setting", "Strategy"]
