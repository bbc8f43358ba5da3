"""Kafka topics as a source: records become rows once, and are never read again after their binding.

    topic ──reader──► records ──decoding, rows──► staged files ──source.discover──► binding: offsets, files
              │                                                                          │
              └── topics: the topic's id, its partitions, where to start                 └──► source.stage

Read `source.py` first, then `followed_topic.py` (one table), `reader.py` (records of a topic), `rows.py` (from records
to updates), `by_key/` (the same where a table has a key), `values/` (from values to columns), `topics.py` (what a topic
is), `positions.py` (what a binding holds), `connection.py` (settings of the client) and `stop.py` (why a table stops).
"""
