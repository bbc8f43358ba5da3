"""The parts of `bench.step`.

state      one row of state per line, at several sizes        plans      views of three shapes beside an empty job
recompute  Spark and DuckDB computing the view anew           peers      Pathway and differential-dataflow
"""
