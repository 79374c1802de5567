"""Lessons as data, their numbers, classes, and the glossary."""
