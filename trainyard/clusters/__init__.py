"""Where machines come from: tables that a page edits, descriptions of other tools, and what they
cost.
"""
