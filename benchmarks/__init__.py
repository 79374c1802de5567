"""Measurements: `python -m benchmarks` runs them all, `python -m benchmarks kernel` one group.
Nothing here is a timed test.
"""

import os

# Set before NumPy is imported, as in worker processes: on busy cores, small matrix products take
# nine times as long with several threads.
os.environ.setdefault("OMP_NUM_THREADS", "1")
