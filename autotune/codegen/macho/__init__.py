"""Mach-O, the format of objects on Apple's systems."""
