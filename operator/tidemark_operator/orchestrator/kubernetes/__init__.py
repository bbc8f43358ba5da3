"""Replicas as pods: one StatefulSet with one driver pod for each replica and shape; Spark makes the executors.

Read in this order:

    names            ReplicaSpec ─► shape (a hash of what needs a new process) ─► names and labels of objects
    templates        manifests: StatefulSet, Service, ConfigMap, Secret, PodDisruptionBudget
    driver, executors, volumes, security   the parts of the pod templates
    ownership        an object ─► the replica or instance that owns it
    reconcile_plan   wanted + found ─► what to apply, what to delete
    pod_observation  StatefulSet + pod + refusals ─► Observation
    pod_watch        reads the API server
    orchestrator     the loop; the only module that writes

The API server holds all state. The owner and labels of a StatefulSet name its replica and shape, so the next operator
continues from what it finds.
"""
