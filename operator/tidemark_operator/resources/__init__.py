"""The four kinds of resources, as typed views, and their conditions. Everything here is pure: no client, clock or I/O.

    API server's dict ──parse──> ComputeInstance │ ComputeReplica │ DataSource │ Dataflow   (frozen)
    controller's state ──> facts ──conditions_of──> Verdicts ──merge──> conditions in status

Read in this order:

* `manifest/`     the four kinds, the fields of a nested dict, and the errors that name a field
* `addresses/`    what sources connect to, and the operator's list of what is allowed
* `conditions/`   the truth tables, one module for each kind

The API server has validated a manifest against `crds/`. Parsing still raises on an invalid field, because a cluster may
run CustomResourceDefinitions of another version.
"""
