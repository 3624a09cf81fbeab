"""The tuning log: every trial ever measured, and the fastest of each task.

`store.TuningLog` is what the rest of the project opens. `query` alone needs nothing but the
standard library, so that `autotune query` answers at once.
"""
