"""Convolutions and matrix products on GPUs."""
