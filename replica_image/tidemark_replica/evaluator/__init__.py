"""The second evaluator: typed expression trees on Arrow, beside the kernels, without a trip to the JVM.

    MapFilterProject ──admits?──> compiled once to closures over whole columns ──> the rows that Catalyst would give

Catalyst evaluates everything; this evaluates a part of it, and must not be told from it: the same values, the same
failures, the same errors. A function is admitted (`functions.py`) once `tests/evaluator` has compared the two on edge
values of all its types, with failures at every position. Where one expression of an operator is not admitted, Catalyst
gets the operator whole.

Reading order: `result` (a column and where it failed), `functions` (the table), `numbers`, `comparisons`, `logic`,
`text`, `dates`, `casts`, `mfp`.
"""

from tidemark_replica.evaluator.mfp import admits, evaluation

__all__ = ["admits", "evaluation"]
