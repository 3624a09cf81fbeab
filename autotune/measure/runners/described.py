"""The runner of a machine that is not here. In: its profile. Out: a Runner that measures nothing.

A run that is played beforehand on it needs no more than what it says of itself.
"""

from __future__ import annotations

from autotune.machine.profile import DeviceProfile
from autotune.measure.types import MeasureRequest, MeasureResult, OnResult, Status


class DescribedRunner:
    """A machine of which there is a description only: every candidate is DEVICE_LOST."""

    def __init__(self, profile: DeviceProfile) -> None:
        self._profile = profile

    def profile(self) -> DeviceProfile:
        return self._profile

    def measure(
        self, requests: tuple[MeasureRequest, ...], on_result: OnResult | None = None
    ) -> tuple[MeasureResult, ...]:
        """One result per request, all the same."""
        lost = MeasureResult(
            status=Status.DEVICE_LOST,
            error="this machine is known by its description only",
            device=self._profile.device,
        )
        for number in range(len(requests) if on_result else 0):
            on_result(number, lost)  # type: ignore[misc]
        return (lost,) * len(requests)

    def close(self) -> None:
        """Nothing is held."""
