"""SQL's CREATE, ALTER and DROP: Dataflows and DataSources that the operator writes for a caller, within the caller's
rights.

Read definition (a view or index, and the fields of its spec), table_definition (a table that is written), definitions
(the writes), readiness (what `wait` waits for).
"""
