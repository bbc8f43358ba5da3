"""What a certificate says of its holder: one URI, and for those who are called, one host name.

    tidemark://replica/NAMESPACE/NAME/UID  ◄──►  UID.NAME.NAMESPACE.replica.tidemark.internal

A caller asks for the host name whatever the address is, so an address proves nothing: not who listens there now, nor
whether it is the resource that had this name before. No such host can be looked up; `.internal` is nobody's.
"""

from __future__ import annotations

from dataclasses import dataclass

SCHEME = "tidemark://"
DOMAIN = "tidemark.internal"


@dataclass(frozen=True)
class Identity:
    """`path`: the parts of the URI, the role first. Each is a DNS label."""

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
    """Of one ComputeReplica; a later one of the same name is another."""
    return Identity(("replica", namespace, name, uid))


def identity_of(uri: str) -> Identity | None:
    """Whose URI it is; None for one that is none of ours."""
    if not uri.startswith(SCHEME):
        return None
    path = tuple(uri.removeprefix(SCHEME).split("/"))
    return Identity(path) if all(path) else None
