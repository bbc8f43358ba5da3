"""The compute controller: pure objects (message in, messages out), and one small task per replica that does the I/O.

shards       frontiers and read holds of durable collections        as_of       where a dataflow begins
collection   frontiers of an export, on each replica and overall    hydration   how many hydrate at once
instance     dataflows -> history -> every replica                  peeks       first answer wins
subscribes   streams of all replicas, merged                        copies      the first complete one wins
ingestion    which replica ingests a source, under which term       ingestions  and what is told of it
replica_connection   the I/O
"""
