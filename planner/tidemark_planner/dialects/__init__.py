"""SQL of other dialects as Spark's: the one translator, for Dataflows, queries and the tests of other engines.

    text ─ sqlglot ─► tree ─ admission ─► meanings ─► Spark's text ─ the planner ─► HIR ─ typed_check ─► HIR

Reading order: `foreign_text` (a user's text as a whole), `admission` (what is admitted of a dialect), `translation` and
`meanings` (what it means), `typed_check` (what only types tell). The tests of other engines call `translation` alone:
they compare answers, so they may try more than is admitted.
"""
