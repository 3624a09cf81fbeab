"""Rules for CPUs: a folder or a file for each family of kernels."""
