"""Reductions along a dimension that is not the innermost, on CPUs."""
