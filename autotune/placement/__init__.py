"""Placement of tensors in memory and time: layouts, halos, padding, views, reuse, arena."""
