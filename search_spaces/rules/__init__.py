"""Rules, one file per kind of task. `RULES` maps names to them."""

from autotune.registry import load_folder
from search_spaces.base import RULES, Rule, rule_for

load_folder(__name__, list(__path__))

__all__ = ["RULES", "Rule", "rule_for"]
