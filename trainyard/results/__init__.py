"""What stored runs say: compared, grouped, windowed, beside what happened, and taken away as
tables.
"""
