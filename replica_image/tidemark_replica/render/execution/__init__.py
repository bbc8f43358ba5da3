"""The execution of a step: runners, executor affinity, background merges."""
