"""Instances at run time: the pure controller, the connections to its replicas, and the callers that wait for answers.

fleet                 all instances of all namespaces, and the clock that maintains them
instance_facade       what the rest of the operator may ask of an instance's controller
running_instance      one instance: hosts the connections, passes events on
replica_state         what is known of one replica's connection
clients               callers that wait for answers of replicas
instance_counters     messages and durations, for metrics
lag_histogram         how far exports are behind the clock, for metrics
clock                 the time in milliseconds
"""
