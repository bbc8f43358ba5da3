"""Pods that ask the SQL port one question again and again, by the Service's name, as programs in a cluster do."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from tests.cluster import pods
from tests.cluster.jobs.ask_again import END, LONGEST_SECONDS
from tests.cluster.pgwire.sql_port import HOST, STATUSES, SqlPort
from tests.cluster.waiting import wait_for
from tidemark_devcluster.errors import KubectlFailed

JOB = Path(__file__).parents[1] / "jobs" / "ask_again.py"
ANSWER = [["open", 2], ["paid", 1]]
KINDS = ("connections", "questions")
AGAIN = 20
"""The answers in a row after which a client is served again."""


@dataclass(frozen=True)
class PollingClient:
    """A pod that asks for the statuses. `kind`: a connection for each question, or one as long as it lives."""

    served: SqlPort
    kind: str

    @property
    def pod(self) -> str:
        return f"asks-{self.kind}"

    def start(self, image: str) -> None:
        served = self.served
        files = {"ask_again.py": JOB.read_text(), "ca.crt": served.authority.read_text()}
        environ = {
            "PGHOST": HOST,
            "PGDATABASE": served.system.team,
            "PGUSER": "reader",
            "PGPASSWORD": served.token(),
            "PGSSLMODE": "verify-full",
            "PGSSLROOTCERT": f"{pods.JOB_FOLDER}/ca.crt",
            "PGCONNECT_TIMEOUT": "20",
            "PGOPTIONS": "-c statement_timeout=30s",
        }
        made = pods.pod(
            self.pod,
            image,
            [],
            command=["tini", "--", "python", "-m", "ask_again", self.kind, STATUSES],
            env=[{"name": name, "value": value} for name, value in environ.items()],
        )
        with_job = pods.with_files(made, self.pod)
        pods.apply(served.system.node, served.system.team, pods.config_map(self.pod, files), with_job)

    def tries(self) -> list[dict[str, Any]]:
        try:
            output = pods.logs(self.served.system.node, self.served.system.team, self.pod)
        except KubectlFailed:  # the container has not started
            return []
        return [json.loads(line) for line in output.splitlines() if line.endswith("}")]

    def wait_for_answers(self) -> None:
        """Wait for AGAIN answers in a row to questions that are asked from now on."""
        before = len(self.tries())

        def answered() -> bool:
            new = self.tries()[before + 1 :]
            return len(new) >= AGAIN and all("rows" in each for each in new[-AGAIN:])

        wait_for(f"answers of {self.pod}", answered, self.explain)

    def end(self) -> list[dict[str, Any]]:
        """Have it end, and return its tries: each answer was right, and each try ended within its bound."""
        self.served.system.kubectl("exec", self.pod, "--", "touch", str(END))
        at = (self.served.system.node, self.served.system.team, self.pod)
        wait_for("its end", lambda: pods.phase(*at) in ("Succeeded", "Failed"), self.explain)
        assert pods.phase(*at) == "Succeeded", self.explain()
        tries = self.tries()
        assert [each for each in tries if each.get("rows", ANSWER) != ANSWER] == []
        assert max(each["seconds"] for each in tries) < LONGEST_SECONDS
        return tries

    def remove(self) -> None:
        with suppress(KubectlFailed):
            self.served.system.kubectl(
                "delete", f"pod/{self.pod}", f"configmap/{self.pod}", "--ignore-not-found", "--now"
            )

    def explain(self) -> str:
        last = "\n".join(map(str, self.tries()[-5:]))
        return f"{last}\n{self.served.system.kubectl('describe', 'pod', self.pod)}\n{self.served.system.explain()}"


@contextmanager
def polling(served: SqlPort, image: str, kinds: Sequence[str] = KINDS) -> Iterator[list[PollingClient]]:
    """Clients of these kinds, which have answers."""
    with ExitStack() as stack:
        clients = [PollingClient(served, kind) for kind in kinds]
        for client in clients:
            client.remove()
            stack.callback(client.remove)
            client.start(image)
        for client in clients:
            client.wait_for_answers()
        yield clients


def errors_of(tries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [each for each in tries if "error" in each]


def summary(tries: list[dict[str, Any]]) -> str:
    """The number of answers, the longest time without one, and each kind of error."""
    ends = [each["began"] + each["seconds"] for each in tries if "rows" in each]
    gap = max(after - before for before, after in pairwise(ends))
    texts = Counter(f"{each['sqlstate']} {each['error'].splitlines()[0]:.100}" for each in errors_of(tries))
    longest = max(each["seconds"] for each in tries)
    return f"{len(ends)} answers, none for {gap:.1f} s, a try took {longest:.1f} s at most, errors: {dict(texts)}"
