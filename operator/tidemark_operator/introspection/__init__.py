"""What the operator knows of its dataflows, as relations that queries may name: `tidemark_introspection.frontiers`.

relations    their names and columns; the rows of each at this moment
inline       a planned query over them, with the rows in the plan instead of a table
lags         how far behind the clock each export was, second by second, as histograms
"""
