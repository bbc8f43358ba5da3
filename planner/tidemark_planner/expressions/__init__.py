"""Catalyst's expressions as typed trees of the protocol.

expression          walks Catalyst's tree; the rest are families of expressions and helpers
├─ call_classes     classes that are plain calls of the allow-list
├─ call_forms       calls whose type or form follows from their arguments
├─ nested, lambdas, java_method_calls, casting, literals
├─ fold, constants, literal_comparisons      folding of literals
└─ round_trip, constant_patterns             proofs about the SQL text that replicas evaluate
"""
