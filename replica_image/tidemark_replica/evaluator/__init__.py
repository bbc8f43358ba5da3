"""The Arrow evaluator: typed expression trees over whole Arrow columns, beside the kernels, without the JVM.

    MapFilterProject ──admits?──> compiled once to closures over whole columns ──> the rows that Catalyst would give

Catalyst evaluates all functions; this evaluator a subset, with the same values, failures and errors. A function is
admitted (`functions.py`) once `tests/evaluator` has compared both evaluators on edge values of all its types, with
failures at every position. If one expression of an operator is not admitted, Catalyst evaluates the whole operator.

Reading order: `result` (a column and its failures), `functions` (the table), `numbers`, `comparisons`, `logic`, `text`,
`dates`, `casts`, `mfp`; then `simplified`, the shapes that Catalyst's optimiser changes.
"""

from tidemark_replica.evaluator.mfp import admits, evaluation

__all__ = ["admits", "evaluation"]
