"""Commands of the command line, one module per command or family of commands."""

import os

# As in worker processes, and before NumPy is imported: matrices of policies are small, and threads
# that wait for each other take longer than the product.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
