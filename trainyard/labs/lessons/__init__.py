"""Lessons as data, with the numbers that decide them; classes, glossary, and texts of the
documentation.
"""
