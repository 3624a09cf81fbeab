"""Search spaces: params, spaces, and one rule per kind of task."""
