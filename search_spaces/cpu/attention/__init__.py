"""Attention on CPUs: a softmax between two products."""
