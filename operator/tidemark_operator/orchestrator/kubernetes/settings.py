"""What holds for all replicas of an operator, given on its command line."""

from __future__ import annotations

from dataclasses import dataclass

USER = 65532


@dataclass(frozen=True)
class Settings:
    """Accounts are those of replicas that have executors; others need no rights, and have none. `user`: of all pods;
    None: the cluster chooses."""

    image: str
    pull_policy: str = "IfNotPresent"
    pull_secrets: tuple[str, ...] = ()
    driver_account: str = "tidemark-driver"
    executor_account: str = "tidemark-executor"
    user: int | None = USER
