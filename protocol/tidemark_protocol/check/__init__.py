"""Checks of plans and commands that every process runs before it acts on them.

Reading order: `command` (anything from the wire), `plan` (a dataflow), then its parts: `nodes`, `aggregates`, `scalar`,
`continual_task`.
"""
