"""The Compare page: table, figures over time, who wins, groups, and what is behind the numbers."""
