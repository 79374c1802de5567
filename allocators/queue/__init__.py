"""Policies that order whole jobs: first come first served, shortest first, backfilling, priority
preemption, and policies made of others.
"""
