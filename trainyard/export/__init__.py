"""Exports a simulated configuration as a patch for the scheduler of a site."""
