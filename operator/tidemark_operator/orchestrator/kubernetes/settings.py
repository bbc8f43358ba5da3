"""Settings of all replicas of an operator, from its command line."""

from __future__ import annotations

from dataclasses import dataclass

USER = 65532


@dataclass(frozen=True)
class KubernetesSettings:
    """The service accounts serve replicas with executors; other replicas have no account and no rights. `user`: the uid
    of every pod; None: the cluster chooses. `tracing`: environment variables of replicas, by name."""

    image: str
    pull_policy: str = "IfNotPresent"
    pull_secrets: tuple[str, ...] = ()
    driver_account: str = "tidemark-driver"
    executor_account: str = "tidemark-executor"
    user: int | None = USER
    tracing: tuple[tuple[str, str], ...] = ()
