"""The fast engine: queue rules over arrays in compiled loops, for plain conditions."""
