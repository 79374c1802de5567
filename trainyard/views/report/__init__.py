"""Reports: one self-contained HTML file of a study, readable without a network."""
