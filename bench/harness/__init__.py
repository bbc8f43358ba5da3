"""The parts that benchmarks share.

cache    data that is made once                         workload data, deltas, histories and queries: TPC-H
query    a view's plan, by the planner's process        engine   one view over shards, stepped
measure  views that take turns, checked at every step   answers  results, compared before times
clock    times and CPU time                             ratios   statistics and ratios as figures
context  the machine, the versions, the last line       live_lineitem  the whole system, with lineitem
busy     clients of a busy system                       gateway_client a connection to its gateway
"""
