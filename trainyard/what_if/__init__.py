"""One stored run opened for looking at: any instant, any machine, any job."""
