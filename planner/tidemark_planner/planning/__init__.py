"""The requests of the operator: a Dataflow, a peek, a one-shot query, a continual task."""
