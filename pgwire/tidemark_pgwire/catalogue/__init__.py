"""Answers to what clients ask besides users' queries: pg_catalog, information_schema, settings, functions about the
session.

    statement ──► answers it?    no: the gateway answers it
                  yes ──► sql/: admitted, typed, rewritten for DuckDB ──► sandbox: over rows of `contents/` ──► Arrow

Read `facts` (questions and answers), `session_catalogue`, `sql/rewriting`, `contents/system_rows`, `sandbox`.
"""
