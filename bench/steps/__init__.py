"""The parts of `bench.step`.

state      one row of state per line, at several sizes        plans      views of three shapes beside an empty job
recompute  Spark and DuckDB recomputing the view              shapes     one Spark task, or the worker beside the driver
exchange   one task, or several with exchanges               together   one job each, or one for several dataflows
peers      Pathway and differential-dataflow
"""
