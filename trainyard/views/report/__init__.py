"""One HTML file from a study: figures, numbers, scenario and provenance, to be opened anywhere
without a network.
"""
