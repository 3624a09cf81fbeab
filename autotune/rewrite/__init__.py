"""Equations between graphs: proven, then chosen by what the graphs' kernels are predicted to take.

A `Rewrite` is text that a person reads (`parse`), is proven (`prove`), found in graphs (`match`)
and applied (`apply`); `search` says which of them gain. `generate` finds more of them.
"""
