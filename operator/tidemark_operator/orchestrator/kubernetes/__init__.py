"""Replicas as pods: one StatefulSet of one driver pod each; Spark makes the executors.

    ReplicaSpec ─► names      the shape: a hash of all that needs another process ─► names and labels
                   templates  manifests: StatefulSet, Service, ConfigMap, Secret, PodDisruptionBudget
                     driver, executors, security       what they are made of
                   ownership  an object ─► whose it is, by its owners
                   deciding   what is wanted + what there is ─► what to apply, what to delete
                   observing  StatefulSet + pod + what was refused ─► Observation
                   orchestrator   the only one that acts

All but the last are pure. The API server holds all state: a StatefulSet says by its owner and labels whose it is and
in which shape, so the next operator goes on with what it finds.
"""
