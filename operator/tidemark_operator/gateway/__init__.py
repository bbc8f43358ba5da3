"""The gateway: what people and tools ask the operator, over gRPC.

server       every call                                       listening, service: where, and how it is found
access       who calls, and what that one may                 rights, certificates, lasting
queries      a statement to a peek, or to operators           statements, lookups, asking, turns; one_shot, readables
moments      as of which time                                 strict: of all that was ingested
transient    subscribes and copies
admission    how much is held, and how many run               patience, taking: who waits, and for how long
frontiers    what the operator knows by itself                why, seen, explain
"""
