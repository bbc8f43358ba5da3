"""Instances at run time: the pure controller, the connections to its replicas, and the callers that wait for answers.

fleet                 all instances of all namespaces, and the clock that maintains them
instance_facade       what the rest of the operator may ask of an instance's controller
running_instance      one instance: hosts the connections, passes events on
replica_state         what is known of one replica's connection
any_replica           asks any replica that answers
pending_queries       callers that wait for the answer of a peek or a query
pending_streams       clients that wait for a subscribe or a copy
subscription          batches that one subscribe has still to receive, in bounded memory
result_stash_reader   reads a large answer from its replica, a piece at a time
query_death_count     fails queries that replicas die of
quarantined_readers   fails queries that read an index of a quarantined Dataflow
incompatible_readers  fails queries that no replica's image can compute
status_meaning        what statuses mean to a caller that waits
instance_counters     messages and durations, for metrics
lag_histogram         how far exports are behind the clock, for metrics
clock                 the time in milliseconds
"""
