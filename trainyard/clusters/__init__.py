"""Read clusters from tables and files of other tools, and price their GPUs."""
