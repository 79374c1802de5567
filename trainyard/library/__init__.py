"""The library of stored studies: names, tags, comparison, export and deletion."""
