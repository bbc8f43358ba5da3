"""The whole system as users have it: the chart, an object store, replicas with executors in pods, and what may die."""
