"""The compute controller: pure objects that turn messages into messages, and one task per replica that does the I/O.

Callers outside `fleet/` use it through `fleet.instance_facade`.

    instance                        one instance: commands to all its replicas, responses of each
    controller_events               what an instance tells its host
    ingester_choice                 which replica ingests a source, under which term
    ingestion_registry              ingestions that were sent, and the bindings they still need
    peek_validation                 whether a peek can be answered, and the hold that keeps its rows readable

    frontiers/dataflows             installed dataflows, what each reads, what may be compacted
    frontiers/collection            frontiers of one export, on each replica and overall
    frontiers/shards                frontiers and read holds of durable collections
    frontiers/as_of                 the time at which a dataflow begins
    frontiers/read_policy           how far back reads go; the bound of the clock
    frontiers/succession            when a new revision is as far as the one that serves
    frontiers/dataflow_end          the time at which a dataflow ends
    frontiers/end_attribution       which revision finished a table

    replicas/replica_connection     the I/O with one replica
    replicas/replica_link           commands that wait to be sent on one connection
    replicas/disconnected_replicas  what stays readable for replicas that may come back
    replicas/excluded_dataflows     dataflows that a replica is not sent
    replicas/shard_reports          what replicas report of shards

    hydration/hydration_gate        how many dataflows hydrate at a time on a replica, and which next
    hydration/quarantine            who is blamed for the death of a replica

    answers/peeks                   pending peeks: the first answer wins
    answers/client_dataflows        subscribes and copies, as collections
    answers/subscribes              the streams of all replicas, merged into one
    answers/copies                  the first complete copy wins
    answers/client_end_messages     what a client is told when what it reads goes away

    reports/hydration_progress      percent, whole and by operator
    reports/catch_up                percent of what a dataflow is behind
    reports/operator_costs          rows, bytes and milliseconds of operators
    reports/replica_problems        problems of a replica's store and executors
"""
