"""Ingestion: outside data into shards, exactly once, as a function of recorded bindings.

    source ──discover──► remap shard: tick -> the outside data that belong to it    (1) mint the binding
                              │
                              └──stage──► table shards: exactly those data, at that tick (2) append, idempotent by upper

A table's upper says which bindings it holds, so nothing else needs to be recorded. After a crash the bindings between a
table's upper and the remap's are staged and appended again; an append that landed is never repeated.

Read `ingester.py` first, then `source.py` (the interface of sources), `ingestion_threads.py`, `files/`, `delta/`,
`postgres/`, `kafka/` (with `avro/` and `protobuf/`), `written/`, `introspection/`, `tpch/` and `nexmark/`.
"""
