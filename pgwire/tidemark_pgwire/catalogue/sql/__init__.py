"""PostgreSQL's statements about the catalogue, as DuckDB's: parsed and admitted (`statement`), typed (`result_types`),
rewritten (`rewriting`) with functions of ours (`functions`)."""
