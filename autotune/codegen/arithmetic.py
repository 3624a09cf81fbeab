"""The arithmetic that formulas of element functions are written with, one class a language."""

from __future__ import annotations

from typing import Protocol


class FormulaWriter(Protocol):
    """Operations of a language as text; values are texts, conditions too."""

    def fused(self) -> FusedWriter | None:
        """The same with multiply-adds that round once, where the processor has them."""

    def const(self, value: float) -> str:
        """A number in every lane."""

    def op(self, name: str, a: str, b: str) -> str:
        """fadd, fsub, fmul or fdiv."""

    def fma(self, a: str, b: str, c: str) -> str:
        """a * b + c, rounded once or twice."""

    def call(self, name: str, *args: str) -> str:
        """fabs, sqrt or copysign."""

    def compare(self, kind: str, a: str, b: str) -> str:
        """olt or ogt: less or greater, false where either is not a number."""

    def choose(self, flag: str, a: str, b: str) -> str:
        """a where the flag is set, else b."""

    def function(self, name: str, x: str) -> str:
        """Another element function."""

    def polynomial(self, x: str, coefficients: tuple[float, ...]) -> str:
        """By Horner's rule, highest power first."""

    def upper(self, x: str) -> str:
        """x cut to its first 12 significant bits."""

    def reduced(self, x: str, rest: str) -> tuple[str, str]:
        """(a number with n in its lowest bits, x + rest - n ln 2), |x| < 128."""

    def times_power(self, p: str, shifted: str, more: int) -> str:
        """p times two to the power of n + more: normal numbers only."""

    def binade(self, u: str) -> tuple[str, str]:
        """(n, 2**-n) for the n that brings u * 2**-n into sqrt(1/2) .. sqrt(2): n below 127."""


class FusedWriter(FormulaWriter, Protocol):
    """Operations of a processor with fused multiply-adds."""

    def fma_once(self, a: str, b: str, c: str) -> str:
        """a * b + c, rounded once."""
