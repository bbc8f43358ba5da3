"""Replicas and the planner as local processes.

Read in this order: `orchestrator` (all processes of an operator), `supervised_process` (the state machine of one
process), `process_record` (its files), `launch` (what a child runs before its program), `stop` (a command that ends
everything).
"""
