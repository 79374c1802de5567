"""What is said before a run: who cannot run it, what is missing, and the ways out."""
