"""Rows that are reduced, on GPUs."""
