"""Identities in certificates: one URI per holder, and one host name per holder that accepts connections.

    tidemark://replica/NAMESPACE/NAME/UID  ◄──►  UID.NAME.NAMESPACE.replica.tidemark.internal

A caller verifies the host name, whatever address it connects to. So an address proves nothing: neither which process
listens there, nor whether its resource is an earlier one of the same name. The host names never resolve; `.internal` is
reserved.
"""

from __future__ import annotations

from dataclasses import dataclass

SCHEME = "tidemark://"
DOMAIN = "tidemark.internal"


@dataclass(frozen=True)
class Identity:
    """`path`: the parts of the URI, the role first. Each part is a DNS label."""

    path: tuple[str, ...]

    @property
    def uri(self) -> str:
        return SCHEME + "/".join(self.path)

    @property
    def host(self) -> str:
        return ".".join((*reversed(self.path), DOMAIN))

    def __str__(self) -> str:
        role, *rest = self.path
        match rest:
            case [namespace, name, uid]:
                return f"{role} {namespace}/{name} ({uid})"
            case _:
                return " ".join(("the", role, *rest))


OPERATOR = Identity(("operator",))
PLANNER = Identity(("planner",))
GATEWAY = Identity(("gateway",))


def replica_identity(namespace: str, name: str, uid: str) -> Identity:
    """The identity of one ComputeReplica; a later one of the same name has another uid."""
    return Identity(("replica", namespace, name, uid))


def identity_of(uri: str) -> Identity | None:
    """The identity of the URI; None for a URI of another scheme."""
    if not uri.startswith(SCHEME):
        return None
    path = tuple(uri.removeprefix(SCHEME).split("/"))
    return Identity(path) if all(path) else None
