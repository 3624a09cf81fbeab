"""The meaning of a task: its naive loops, its values, inputs to try it with, its work."""
