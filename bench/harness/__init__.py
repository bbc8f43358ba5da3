"""What every benchmark needs.

cache    where data that is made once is kept           tpch      TPC-H tables of a size
deltas   seeded updates of a table                      query     a query, and the planner's plan of it
engine   one view over shards, stepped                  answers   results, compared before times
clock    times and CPU time                             context   the machine, the versions, the last line
"""
