"""Where jobs come from: samples, files and uploads, and what becomes of them before a run."""
