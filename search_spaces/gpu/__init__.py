"""Rules for GPUs: a folder or a file for each family of kernels."""
