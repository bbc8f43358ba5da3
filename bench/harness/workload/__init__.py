"""The workload of benches: TPC-H, as data and as views.

tpch          tables of a size                    deltas   seeded updates of lineitem
tpch_history  shards and DuckDB's tables, in step queries  the measured views
"""
