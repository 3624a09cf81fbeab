"""Convolutions and matrix products on CPUs."""
