"""Where certificates are kept, by name: what mounts them, and what makes them, must agree.

    Secret                        namespace                 mounted by         goes with (owner reference)
    tidemark-authority            the operator's own        nobody             the Lease, which the chart makes
    tidemark-planner-tls          the operator's own        the planner        the same
    tidemark-replica-NAME-tls     of the ComputeReplica     its driver's pod   its ComputeReplica

The latter two are of type kubernetes.io/tls, with `ca.crt` besides. Whoever mounts one passes the folder as --tls-dir;
mount it whole, without `subPath`, or it is never renewed in the pod.
"""

from __future__ import annotations

from tidemark_operator.resources.manifest.meta import GROUP

AUTHORITY = "tidemark-authority"
PLANNER = "tidemark-planner-tls"
MOUNT_PATH = "/etc/tidemark/tls"
"""Where pods have it."""

SECRET_TYPE = "kubernetes.io/tls"
MANAGED_LABEL = f"{GROUP}/certificate"
"""On each of these Secrets, with what it is for: one without it is somebody else's, and is not touched."""


def replica_secret(name: str) -> str:
    """Of a ComputeReplica, in its namespace."""
    return f"tidemark-replica-{name}-tls"
