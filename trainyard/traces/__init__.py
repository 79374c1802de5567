"""Sources of jobs: samples, files and uploads, and their preparation for a run."""
