"""The messages of the protocol, one frozen dataclass each.

Reading order: `commands`, `responses`, `conversation_stages`, `command_history` (what a new replica is sent),
`planning` (operator and planner), `replica_settings`, `legacy_protocol` (the older generation).
"""
