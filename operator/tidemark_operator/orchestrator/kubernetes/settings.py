"""What holds for all replicas of an operator, given on its command line."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Settings:
    """Accounts are those of replicas that have executors; others need no rights, and have none."""

    image: str
    pull_policy: str = "IfNotPresent"
    pull_secrets: tuple[str, ...] = ()
    driver_account: str = "tidemark-driver"
    executor_account: str = "tidemark-executor"
