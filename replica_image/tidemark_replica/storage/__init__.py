"""Ingestion: outside data into shards, exactly once, as a function of recorded bindings.

    source ──discover──► remap shard: tick -> what of the source belongs to it     (1) mint the binding
                              │
                              └──stage──► table shards: exactly that, at that tick (2) append, idempotent by upper

A table's upper says which bindings it holds, so nothing else has to be recorded: after a crash anywhere, the bindings
between a table's upper and the remap's are staged and appended again, and an append that landed is never repeated.
"""
