"""The whole system: the chart, an object store, replicas with executors in pods, and faults of each part."""
