"""The allow-list: every function, aggregate and window function of plans, with its types and errors.

Reading order: `entry` (one function), `registry` (all scalar functions), `call_types` and `call_errors` (their
signatures
and errors), `sql_text` (their SQL text); families: `math`, `text`, `codes`, `dates`, `intervals`, `nested`, `lambdas`;
then `aggregates`, `windows`, `table_functions`.
"""
