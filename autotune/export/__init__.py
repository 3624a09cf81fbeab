"""Compiled models out of Python: libraries, objects and C."""
