"""Keeps how well candidates were ranked. In: a run's events. Out: rankings in its log."""

from __future__ import annotations

from autotune.db.rankings import KeptRanking, keep
from autotune.db.store import TuningLog
from autotune.tuner.events import Event, OnEvent, Ranked, Started


def keeping(log: TuningLog, model: str, target_key: str, listener: OnEvent | None) -> OnEvent:
    """A listener that writes each round's rankings to the log, after which the log's one file has
    everything, then tells the other one."""
    task_keys: list[str] = []

    def on_event(event: Event) -> None:
        if isinstance(event, Started):
            task_keys[:] = [info.task.key for info in event.tasks]
        elif isinstance(event, Ranked):
            found = [
                KeptRanking(
                    task_key=task_keys[r.task],
                    target_key=target_key,
                    model=model,
                    round=event.number,
                    samples=r.samples,
                    rank_correlation=r.rank_correlation,
                    top_recall=r.top_recall,
                    regret=r.regret,
                )
                for r in event.tasks
            ]
            keep(log, found)
            log.checkpoint()
        if listener is not None:
            listener(event)

    return on_event
