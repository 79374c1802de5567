"""The Trace page: an upload in three steps, made workloads, the part that is taken, and its
shape.
"""
