"""Import of trace files on the Trace page: upload, questions, columns, account, recipes."""
