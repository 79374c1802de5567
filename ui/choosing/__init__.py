"""The Cluster and Policies pages: machines as tables, cards of policies, models and their
parameters.
"""
