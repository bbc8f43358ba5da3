"""Names of the Secrets with certificates, which pods mount.

    Secret                        namespace                 mounted by         owner (collected with it)
    tidemark-authority            the operator's own        no pod             the Lease, which the chart creates
    tidemark-planner-tls          the operator's own        the planner        the same
    tidemark-replica-NAME-tls     of the ComputeReplica     its driver's pod   its ComputeReplica

The latter two are of type kubernetes.io/tls, with `ca.crt` added. A pod passes the mounted folder as --tls-dir. Mount
the whole Secret: with `subPath` the kubelet never renews it in the pod.
"""

from __future__ import annotations

from tidemark_operator.resources.manifest.meta import GROUP

AUTHORITY = "tidemark-authority"
PLANNER = "tidemark-planner-tls"
MOUNT_PATH = "/etc/tidemark/tls"
"""The mount path in pods."""

SECRET_TYPE = "kubernetes.io/tls"
MANAGED_LABEL = f"{GROUP}/certificate"
"""The label of these Secrets. The operator does not touch a Secret without it."""


def replica_secret(name: str) -> str:
    """The Secret's name for a ComputeReplica, in its namespace."""
    return f"tidemark-replica-{name}-tls"
