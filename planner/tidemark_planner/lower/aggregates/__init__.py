"""Aggregates: the grouping of a SELECT, each aggregate call, and the expressions over them.

Reading order: `aggregate`, `placeholders` (how calls are collected), `calls`, `pair_statistics`, `grouping_sets`.
"""
