"""Micro-benchmarks that find out what a machine can do."""
