"""Callers that wait for answers of replicas.

pending_queries       callers that wait for the answer of a peek or a query
pending_streams       clients that wait for a subscribe or a copy
subscription          batches that one subscribe has still to receive, in bounded memory
row_calls             sends rows to the replica that ingests a source
result_stash_reader   reads a large answer from its replica, a piece at a time
query_death_count     fails queries that replicas die of
quarantined_readers   fails queries that read an index of a quarantined Dataflow
incompatible_readers  fails queries that no replica's image can compute
status_meaning        what statuses mean to a caller that waits
"""
