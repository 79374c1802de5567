"""True and believed speed of jobs: performance models, and beliefs that wrap them."""
