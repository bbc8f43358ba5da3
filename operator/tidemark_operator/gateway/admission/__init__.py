"""Admission: memory of answers, turns at the planner, and how long a statement waits."""
