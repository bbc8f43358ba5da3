"""What replicas report of themselves, as far as it is valid."""
