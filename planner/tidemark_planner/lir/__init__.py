"""HIR to LIR: the physical choices.

Reading order: `hir_to_lir` (one node at a time), `mfp`, `reduce_plan`, `imports`, `joins/`.
"""
