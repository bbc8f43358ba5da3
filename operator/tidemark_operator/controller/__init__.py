"""The compute controller: pure objects (message in, messages out), and one small task per replica that does the I/O.

instance     dataflows -> history -> every replica                  link        what waits to be sent to one
dataflows    who reads what, and what may be compacted              succession  when an edit is as far as what serves
collection   frontiers of an export, on each replica and overall    as_of       where a dataflow begins
shards       frontiers and read holds of durable collections        read_policy how far reading goes back
absences     replicas that come and go                              early       reports ahead of the clock
hydration    how many hydrate at once                               quarantine  who is blamed for a death
peeks        first answer wins                                      transients  subscribes and copies, to all others
subscribes   streams of all replicas, merged                        copies      the first complete one wins
ingestion    which replica ingests a source, under which term       ingestions  and what is told of it
notices      what those around are told                             endings     and clients, when what they read goes
end_times    when a dataflow may end                                whose_end   which revision has finished a table
left_out     who is not told of what                                traffic     how much went over connections
shard_reports   what replicas tell of shards                        peek_reads  what a peek reads stays
said, credible, hydrating, working, troubles   what replicas say of themselves, as far as it can be
replica_connection   the I/O
"""
