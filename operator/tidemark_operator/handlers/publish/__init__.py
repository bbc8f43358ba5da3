"""Status writes: which, and how often."""
