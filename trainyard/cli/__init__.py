"""What each command of the command line does."""

import os

# As in worker processes, and before NumPy is imported: matrices of policies are small, and threads
# that wait for each other take longer than the product.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
