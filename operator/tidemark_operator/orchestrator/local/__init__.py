"""Replicas and the planner as local processes."""
