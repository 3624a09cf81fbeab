"""Rules that hold. In: a task, a target, and what to ask of a rule. Out: the answer of the first
rule that raises nothing.

A rule that raises has a defect, which ends no run: it is told (see `autotune.defects`), and the
next rule that matches is asked. The last one, `plain`, takes the loops as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from autotune.defects import NO_DEFECT, raised
from autotune.target import Target
from autotune.types import Task
from search_spaces.params import Config
from search_spaces.rules import Rule, rule_for, rules_for
from search_spaces.space import Space

T = TypeVar("T")
Choose = Callable[[Task, Target], Rule]


def asked(ask: Callable[[Rule], T], task: Task, target: Target, first: Choose = rule_for) -> T:
    """What the task's rule answers; where that raises, the next one that matches."""
    rule = first(task, target)
    others = (r for r in rules_for(task, target) if r.name != rule.name)
    while True:
        try:
            return ask(rule)
        except NO_DEFECT:
            raise
        except Exception as error:  # a defect of the rule ends no run
            other = next(others, None)
            if other is None:
                raise
            raised(where(task, rule), error, f"rule {other.name} is taken")
            rule = other


def space_of(task: Task, target: Target) -> Space:
    """The space of the first rule that has one."""
    return asked(lambda rule: rule.space(task, target), task, target)


def where(task: Task, rule: Rule, config: Config | None = None) -> str:
    """Which rule raised for what, in words."""
    settled = f" with {settled_by(config)}" if config else ""
    return f"{task.key}: rule {rule.name}{settled} raises"


def settled_by(config: Config) -> str:
    """A config in words."""
    return ", ".join(f"{name}={value}" for name, value in config.items)
