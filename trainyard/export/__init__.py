"""What takes a what-if home: patches for the schedulers that sites run."""
