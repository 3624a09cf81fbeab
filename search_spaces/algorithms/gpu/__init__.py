"""Algorithms for products and convolutions on GPUs, one file each."""
