"""From events to reconciles to statuses.

watch (kopf) ─► cache ─► work queue ─► one reconcile per kind ─► registry, fleet, orchestrator
                                                                      │
                                status_of (pure) ◄────────────────────┘
                                    └─► publisher, within a budget of writes
"""
