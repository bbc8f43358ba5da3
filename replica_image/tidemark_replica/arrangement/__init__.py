"""Arrangements: collections indexed by a key, so that an update costs its own size and not the size of the state.

          delta ──> kernels/ ──────────────> output delta
                      │   ▲
           BatchWriter│   │Trace (probe, scan, rows_at)
                      ▼   │
          batch files (immutable, sorted by key hash, memory-mapped)
                      ▲
          Manifest: the batches of an arrangement, its since and its upper
                      ▲
          ArrangementStore: the current manifests and the pins, hence the files in use

The forms of a row, from a stream to the state:

    Updates      a record batch of c0 ... cn-1, __time, __diff, __error             `rows/updates.py`
    file rows    __hash, c0 ... cn-1, __time, __error or __slot, __diff or __sums   `rows/layout.py`
    Segment      file rows in memory, sorted by hash                                `batches/batch.py`
    batch        segments in one immutable file, which a BatchRef names             `batches/batch.py`
    spine        the batches, oldest first, their sizes doubling                   `spines/spine.py`
    manifest     the spines of an arrangement: one version of it                    `spines/manifest.py`

Reading order:

1. `rows/`: `updates`, `columns`, `nested_columns`, `hashing`, `ordering`, `grouping` (SQL's equality and order on whole
   columns), `layout`, `consolidate`, `value_order`, `task_share`.
2. `batches/`: `batch`, `batch_cache`, `small_batches`, `key_lookup`, `row_ranges`, `value_ranges`, `file_deleter`.
3. `spines/`: `manifest`, `spine` (merging), `merge_policy`, `trace` (reading), `first_rows_reader`.
4. `step` (what a kernel is given), `step_runs`, `store`; then `kernels/`.

`numbers/` holds exact sums. Everything here is Arrow and NumPy: no Spark and no network. Only `batches/`, `step` and
`store` touch files.

The design follows the arrangements of differential dataflow (McSherry et al., Shared Arrangements, PVLDB 2020). A spine
is a log-structured merge tree.
"""
