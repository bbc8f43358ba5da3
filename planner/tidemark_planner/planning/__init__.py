"""The operator's requests: a Dataflow, a peek, a one-shot query, a continual task.

    dataflow ─┐
    peek      ├─► query (one SELECT: text to HIR) ─► assemble (objects to a checked plan)
    one_shot ─┘

Beside them: `allowed_sql` (refusals on the parse tree), `exports`, `continual_task`, `result_finishing`.
"""
