"""Admission: what the gateway bounds, and how long a statement waits.

fair_queue           callers in turn, a share for each, a bound and a deadline
limits               everything that is bounded, each as one queue
planner_admission    the way of every SQL text to the planner
wait_policy          a statement that cannot be answered yet is tried again until a deadline
"""
