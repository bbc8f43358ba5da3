"""Orchestrators: start the processes of replicas that should run, and end those that should not.

Read in this order:

interface     the Orchestrator protocol, the spec of a replica, and the Observation of its process
kubernetes/   replicas as pods: a StatefulSet for each replica and shape
local/        replicas and the planner as subprocesses that outlive the operator: development, tests, a first try
"""
