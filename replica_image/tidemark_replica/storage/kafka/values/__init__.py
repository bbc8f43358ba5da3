"""The way from the values and keys of records to columns: `encodings` (which one), `decoding` (a batch at a time),
`json_values`, `schemas` and `framing` (by a schema, which a registry may have), `decoded` (columns, malformed ones).
"""
