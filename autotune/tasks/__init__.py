"""What a task means: its naive loops, its values, inputs to try it with, the work it takes."""
