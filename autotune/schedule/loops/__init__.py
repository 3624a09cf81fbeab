"""Steps that reshape loops and what they compute."""
