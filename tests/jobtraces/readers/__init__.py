"""Tests of the trace readers."""
