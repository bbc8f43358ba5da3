"""Plans: what a replica computes or ingests, as values with canonical bytes.

Reading order: `expr` and `literals` (scalars), `map_filter_project`, `reductions`, `lir` (operators), `dataflow`
(imports, objects, exports), `sinks`, `refresh`, `ingestion`, `successors`; `row_estimates`; `codec` (bytes and digests)
and `plan_features` (what older replicas lack).
"""
