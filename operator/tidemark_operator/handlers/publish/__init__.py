"""Status documents, and when they are written."""
