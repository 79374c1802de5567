"""What is to be run, as plain documents: scenarios and studies, what can be chosen, and the checks
on it.
"""
