"""Views of results: each figure with its question, finding, data and note, defined once."""
