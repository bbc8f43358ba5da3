"""The way from events to reconciles to statuses.

watch/ ─► cache ─► work_queue ─► reconcile/: one reconciler per kind ─► registry, fleet, orchestrator
                                      │
                  publish/ ◄── status/: pure functions of what is known

watch       watches of the API server, by kopf, in a thread of its own
reconcile   the loop, and one module per kind
revisions   a Dataflow's revisions: planned, stored, marked, installed, taking over
deletion    what happens when an object is deleted
hydration   which revisions hydrate on which replica, and which are blamed for a death
holds       inputs stay readable for dataflows that are not installed
status      statuses, from what the operator knows
publish     status documents, and when they are written
"""
