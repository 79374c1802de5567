"""Steps from the bytes of a file to a table of jobs; `jobtraces.read` runs them."""
