"""Every rule. `RULES` maps names to them: the folders `cpu` and `gpu` have one each per family,
`algorithms` what some of them choose from."""

from autotune.registry import load_folder
from search_spaces import algorithms, cpu, gpu
from search_spaces.base import RULES, Rule, rule_for, rules_for

for _rooms in (algorithms, cpu, gpu):
    load_folder(_rooms.__name__, list(_rooms.__path__))

__all__ = ["RULES", "Rule", "rule_for", "rules_for"]
