"""The gateway: what people and tools ask the operator, over gRPC and HTTP.

folder          module                                     what it does
server          server, grpc_status, status                the calls over gRPC, and the status of each error
                http_server, http_body, http_rows          HTTP: its port, and rows of webhooks
                http_reads, http_text                      queries and subscribes over HTTP, as text
                listener, endpoint_slice                   the address, its certificate, and how clients find it
auth            access, client_certificates                who calls, and whether the API server allows what is asked
                password_logins, failed_logins             who logs in by a password, and how often that may fail
                recent_answers                             what the API server said, for a moment
                rights, rights_renewal                     the rights that a statement needs, at its start and later
admission       fair_queue, limits                         what is bounded, and the queue that shares it
                planner_admission, wait_policy             the way to the planner; how long a statement is tried again
query           statement_cache, plain_select              SQL text to plan, without the planner where that is certain
                statement_shape, plan_template             one plan for statements that differ in literals
                query, one_shot                            plan to peek, or to a dataflow of the query's own
                readable_relations                         which relation answers
                read_time, strict_read                     the time (as_of) of the answer
streams         stream_dataflow, subscribe, copy           dataflows with a sink for one client
                query_answer                               a query, answered and sent to one client
                answer_stream                              an answer to its client, in chunks
definitions     definition, definitions, readiness         Dataflows that SQL creates, edits and deletes
explanations    explain, draft_plan, unapplied             plans: of Dataflows, of edits, of what is not applied
                why, why_snapshot                          what holds a frontier back
                visible_relations                          the catalogue of a namespace, as a caller may see it
"""
