"""Published comparisons, repeated: the papers as data, their runs, and what came out."""
