"""Layouts of values, decided for a whole graph at once by what its kernels cost in them."""
