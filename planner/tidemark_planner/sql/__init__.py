"""The text of a query: its syntax, its names, and what it may contain."""
