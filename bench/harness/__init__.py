"""The parts that benchmarks share.

cache    data that is made once                         tpch     TPC-H's tables of a size
deltas   seeded updates of lineitem                     queries  the measured views
query    a view's plan, by the planner's process        engine   one view over shards, stepped
tpch_history  shards and DuckDB's tables, in step          measure  views that take turns, checked at every step
answers  results, compared before times                 clock    times and CPU time
context  the machine, the versions, the last line       ratios   statistics and ratios as figures
"""
