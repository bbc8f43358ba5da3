"""Columns of Arrow as values of PostgreSQL.

module        what it does
system_types  PostgreSQL's types, as pg_type has them
types         the types of answers: how their values are encoded; the types of SQL's types here
text          a column's values in the text format, as PostgreSQL prints them
binary        the same in the binary format
rows          record batches as messages: DataRow, or lines of COPY
parameters    the values of $1, $2 ..., decoded from either format (arrays: array_parameters)
"""
