"""Elementwise chains, moved data, rows and any other reduction, on CPUs."""
