"""Facts of the upstream's catalogue that change what a table's rows read as, while the stream says nothing of it.

membership      how the publication has a table: removed and added again, changes between are lost
printed_types   what the texts of a column's values depend on: labels of enums, attributes of composite types
fingerprint     one query that tells whether any of it may have changed since it was looked at last
"""
