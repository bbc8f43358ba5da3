"""Messages, plans (LIR), frontiers and the command history: all that the processes of Tidemark share.

Imports no other package of Tidemark. Reading order: `ids`, `frontier`, `types`; `plan/` (what is computed) with
`functions/` (the allow-list) and `check/`; `messages/` (commands, responses, planning); `wire/` (protobuf and frames)
and
`tls/`. `vocabulary` names what is encoded.
"""
