"""Gavel: shares of time on GPU types, carried out in rounds."""
