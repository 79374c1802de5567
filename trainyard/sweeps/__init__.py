"""Many runs at once: what varies, the runs under way on one machine or many, what their numbers
say, and how many nodes meet a target.
"""
