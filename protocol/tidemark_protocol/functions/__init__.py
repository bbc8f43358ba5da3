"""The allow-list: every function, aggregate and window call that a plan may use, with its types and its errors."""
