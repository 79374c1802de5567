"""Shares of time on machines of several types: arrays in, arrays out."""
