"""Avro: schemas, the resolution of a writer's schema to the reader's, and the decoding of many bodies at once.

    schema text ──schema──► AvroType ──sql_types──► columns of a table
    writer's, reader's ──resolution──► Node ──bodies──► Arrow arrays, and why bodies are malformed
    container file ──container──► blocks ──block_records──► bodies; the reader's schema: table_columns

Read `schema.py` first, then `sql_types.py`, `bodies.py` (many bodies, each with its own position), `nodes.py` (what
reads a value of each kind) and `resolution.py`; of files `container.py`, then `block_records.py`.
"""
