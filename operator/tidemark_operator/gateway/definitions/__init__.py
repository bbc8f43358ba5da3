"""SQL's CREATE, ALTER and DROP: Dataflows that the operator writes for a caller, within the caller's rights.

Read definition (what is asked for, and the fields of a spec), definitions (the writes), readiness (what `wait` waits
for).
"""
