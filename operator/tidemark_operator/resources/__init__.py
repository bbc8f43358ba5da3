"""The four kinds as the operator sees them: typed views in, status and conditions out.

    API server's dict ──parse──> ComputeInstance │ ComputeReplica │ DataSource │ Dataflow   (frozen)
                                                                                    │
    what the controller knows ──> facts ──conditions_of──> Verdicts ──merge──> status dict

Everything here is pure: no client, no clock (the time of writing is an argument), no I/O. The API server has
validated a manifest against `crds/` before it comes here; parsing raises all the same on what does not fit,
since a cluster may run CustomResourceDefinitions of another version.

* `errors`      the package's exceptions
* `fields`      reading a nested dict with the path at hand;  `durations`, `quantities`: the texts in it
* `meta`        what all kinds share
* `instance`, `replica`, `data_source` (with `file_table`), `dataflow`      the four views
* `digest`      spec_digest
* `frontier`    a frontier's shape in status
* `conditions`  Verdict, Condition and merging;  `*_conditions`  the truth table, one file per kind
* `status`      the status documents
"""
