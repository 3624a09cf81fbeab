"""Steps that change where data lies and when it is fetched."""
