"""Authentication of callers, and the rights that each call needs."""
