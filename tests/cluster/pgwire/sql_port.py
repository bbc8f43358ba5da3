"""The PostgreSQL wire server as the chart makes it: two pods behind a Service, a view, and users."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.cluster import pods
from tests.cluster.forward import forwarded
from tests.cluster.waiting import wait_for
from tests.cluster.whole.system import System
from tests.runbooks.guides import Shell, blocks

HOME = "tidemark-system"
HOST = f"tidemark-pgwire.{HOME}.svc"
DEPLOYMENT = "deployment/tidemark-pgwire"
SELECTOR = "--selector=app.kubernetes.io/component=pgwire"
STATUSES = "SELECT status, orders FROM statuses ORDER BY status"
PSQL_SECONDS = 600


@dataclass(frozen=True)
class SqlPort:
    """A release with the SQL port, a view, and its users."""

    system: System
    shell: Shell

    @property
    def authority(self) -> Path:
        return self.shell.folder / "ca.crt"

    def token(self, audience: str = "tidemark-gateway", account: str = "reader") -> str:
        return self.system.kubectl("create", "token", account, "--audience", audience).strip()

    def dsn(self, **options: object) -> str:
        found = {"host": HOST, "port": 5432, "dbname": self.system.team, "user": "reader", "sslmode": "verify-full"}
        found |= {"sslrootcert": self.authority, "password": self.token(), "connect_timeout": 20} | options
        return " ".join(f"{name}={value}" for name, value in found.items())

    @contextmanager
    def connected(self, **options: object) -> Iterator[psycopg.Connection[Any]]:
        """From this machine, through a forwarded port."""
        with (
            forwarded(self.system.node, HOME, "service/tidemark-pgwire", 5432) as port,
            psycopg.connect(self.dsn(hostaddr="127.0.0.1", port=port, **options), autocommit=True) as connection,
        ):
            yield connection

    def psql(self, *statements: str, account: str = "reader") -> subprocess.CompletedProcess[str]:
        """Run psql, which stops at the first error and prints its SQLSTATE."""
        if (program := shutil.which("psql")) is None:
            pytest.skip("psql is not installed: make test-packages")
        with forwarded(self.system.node, HOME, "service/tidemark-pgwire", 5432) as port:
            options = ["--no-psqlrc", "--set=ON_ERROR_STOP=1", "--set=VERBOSITY=verbose", "--tuples-only", "--no-align"]
            dsn = self.dsn(hostaddr="127.0.0.1", port=port, user=account, password=self.token(account=account))
            return subprocess.run(
                [program, dsn, *options, *(f"--command={statement}" for statement in statements)],
                env=os.environ | {"PGCONNECT_TIMEOUT": "20"},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=PSQL_SECONDS,
                check=False,
            )

    def kubectl(self, *arguments: str) -> str:
        return self.system.node.kubectl("-n", HOME, *arguments)

    def pods(self) -> dict[str, dict[str, Any]]:
        """The pods that are ready, without those that are being deleted."""
        found = pods.get(self.system.node, HOME, "pods", SELECTOR)["items"]
        return {pod["metadata"]["name"]: pod for pod in found if is_ready(pod)}

    def wait_for_pods(self, number: int) -> dict[str, dict[str, Any]]:
        """Wait until the Service leads to `number` pods, and all of them are ready; return these pods."""

        def all_ready() -> dict[str, dict[str, Any]]:
            there = pods.get(self.system.node, HOME, "pods", SELECTOR)["items"]
            found = self.pods()
            return found if len(found) == len(there) == number and self._led_to() == set(found) else {}

        return wait_for(f"{number} pods", all_ready, lambda: self.kubectl("describe", "pods", SELECTOR))

    def _led_to(self) -> set[str]:
        slices = pods.get(
            self.system.node, HOME, "endpointslices", "--selector=kubernetes.io/service-name=tidemark-pgwire"
        )
        found = [endpoint for each in slices["items"] for endpoint in each["endpoints"] or ()]
        return {endpoint["targetRef"]["name"] for endpoint in found if endpoint["conditions"]["ready"]}


def blocks_of_start() -> tuple[Any, Any]:
    """The guide's commands that enable it, and those that ask."""
    enable, ask = [each for each in blocks("psql") if each.kind == "sh cluster" and each.heading == "Start"]
    return enable, ask


def is_ready(pod: dict[str, Any]) -> bool:
    conditions = {each["type"]: each["status"] for each in pod["status"].get("conditions", ())}
    return conditions.get("Ready") == "True" and "deletionTimestamp" not in pod["metadata"]
