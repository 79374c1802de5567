"""Policies for clusters of several GPU types."""
