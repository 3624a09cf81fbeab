"""Params and configs: a Param is a name with its choices, a Config is one choice for each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Choice = int | str


@dataclass(frozen=True, slots=True, kw_only=True)
class Param:
    """A tunable name with a finite tuple of choices, all int or all str."""

    name: str
    choices: tuple[Choice, ...]

    def __post_init__(self) -> None:
        if not self.choices or len(set(self.choices)) != len(self.choices):
            raise ValueError(f"param {self.name} needs distinct choices, got {self.choices}")


@dataclass(frozen=True, slots=True)
class Config:
    """One choice for every param of a space, in the space's order."""

    items: tuple[tuple[str, Choice], ...]

    def __getitem__(self, name: str) -> Choice:
        return next(v for k, v in self.items if k == name)

    def number(self, name: str) -> int:
        value = self[name]
        if not isinstance(value, int):
            raise TypeError(f"param {name} is {value!r}, not a number")
        return value

    def to_json(self) -> dict[str, Any]:
        return dict(self.items)

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Config:
        return Config(tuple(data.items()))
