"""Rows of answers, from Arrow to JSON: the same for the command line, HTTP and programs.

arrow_batches  the record batches of an Arrow stream that comes in pieces
values         a column as Python's values, and a value as JSON holds it
updates        the columns of updates, and those that a client has not received yet

It needs pyarrow, which is in the extras of the packages that import it.
"""
