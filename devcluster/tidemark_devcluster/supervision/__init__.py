"""Restarting what dies in local mode: etcd, kube-apiserver, kube-controller-manager, the operator.

    pid file there, process gone ──► repair (what `up` does too) ──► counted in the record
    pid file gone: somebody stopped it, and it stays stopped

Read in this order: `supervisor` (the loop, its back-off, and `Group`: what it supervises), `plane` (a control plane as
a group), `record` (restarts), `table` (what `status` prints), `process` (the supervisor's own process). The supervisor
owns no process: it finds them by pid files, so another supervisor continues after it dies (decision 0035).
"""
