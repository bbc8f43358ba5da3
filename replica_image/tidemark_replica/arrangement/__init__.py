"""Arrangements: indexed state that makes an update cost what the update is, not what the state is.

          delta ──> kernels/ ──────────────> output delta
                      │   ▲
           BatchWriter│   │Trace (probe, scan, rows_at)
                      ▼   │
        batch files (immutable, sorted by key hash, memory-mapped)
                      ▲
        Manifest: which files make up an arrangement up to which time
                      ▲
        ArrangementStore: which manifests are alive, so which files may go

Reading order: `updates` (what a stream of updates looks like), `nested`, `columns`, `hashing`, `ordering`,
`grouping` (SQL equality and order on whole columns), `layout`, `consolidate`, `batch`, `batch_cache`, `manifest`,
`spine` (how batches are merged), `trace` (reading), `step` (what a kernel is given), `store`, then `kernels/`.

Everything here is Arrow and NumPy: no Spark, no network, and but for what lets go of deleted batches, no clock. Only
`batch`, `batch_cache`, `step` and `store` touch files.
"""
