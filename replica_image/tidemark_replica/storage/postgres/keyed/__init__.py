"""Changes that name rows by a key: the row before is found in the same batch, or in an index of the table's shard.

changes   a batch of changes becomes updates
rows      the rows of the table, by key
digests   which row an error row is of
"""
