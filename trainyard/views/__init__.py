"""What results look like: each figure with its question, its finding in words, its numbers and a
note, described once for pages, reports and notebooks.
"""
