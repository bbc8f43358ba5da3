"""The planner: SQL to LIR through Spark's Catalyst, in a process of its own.

    text ─ sql/ ─► catalyst/ ─ lower/, recursion/ ─► HIR (hir/) ─ rules/, desugar/ ─► lir/ ─► LIR

Reading order: `planning/` (one request as a whole), `sql/` and `catalyst/` (text to Spark's analysed tree), `lower/`
with `expressions/` (the tree to HIR), `rules/` and `desugar/` (HIR to simpler HIR), `lir/` (physical choices), and
`service/` (the gRPC service and its worker processes).
"""

import os

# pyspark starts the JVM by a fork, and the child runs some Python before it becomes java. gRPC's fork handlers run in
# that child and sometimes crash it. No process of the planner needs gRPC after a fork, so the handlers are switched
# off.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")
