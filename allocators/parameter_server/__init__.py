"""Policies for jobs of workers and parameter servers."""
