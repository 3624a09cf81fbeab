"""Compiling a model: choose a schedule per task, build the kernels, link them to an image."""
