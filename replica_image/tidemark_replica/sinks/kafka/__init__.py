"""A view's rows as records of a Kafka topic, each time of the view in one transaction.

Read `publication.py` first (what is sent), then `session.py` (the transactional producer), `sink_topics.py` (its
topics), `progress.py` (how far the topic is), `changes.py` (the view's updates, time by time), `envelopes.py` (rows as
records), `record_formats.py` with `json_text.py` and `avro_bodies.py` (their bytes), `avro_schema.py` and
`registered_schemas.py` (the registry)."""
