"""Algorithms: other ways to the same sums, one file each with all that is known of it."""
