"""The rounds of a loop inside a task."""
