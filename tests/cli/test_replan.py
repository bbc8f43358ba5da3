"""`kubectl tidemark replan` patches the Dataflow and prints how the edit goes on; a script in the place of kubectl
answers from a list."""

from __future__ import annotations

import json
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from tidemark.gateway.kubectl import Kubectl
from tidemark_cli.commands import replan
from tidemark_cli.errors import CliError
from tidemark_cli.main import main

Status = dict[str, Any]


def status(active: str, pending: str = "", refused: str = "") -> Status:
    """Revisions as NAME/DIGEST."""
    planned = {"type": "Planned", "status": "False" if refused else "True", "reason": "R", "message": refused}
    made: Status = {"revision": _revision(active), "conditions": [planned]}
    return made | ({"pending": {"revision": _revision(pending)}} if pending else {})


def _revision(text: str) -> dict[str, str]:
    name, _, digest = text.partition("/")
    return {"name": name, "specDigest": digest}


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        (status("d-r1/a"), status("d-r1/a"), None),
        (status("d-r1/a"), status("d-r1/b"), "nothing changes"),
        (status("d-r1/a"), status("d-r1/a", "d-r2/b"), "revision d-r2 hydrates, and takes over from d-r1"),
        (status("d-r1/a"), status("d-r2/b"), "revision d-r2 serves"),
        ({}, {}, None),
        ({}, status("d-r1/b"), "revision d-r1 serves"),
        # another edit hydrates already: it goes on, it takes over, it is replaced
        (status("d-r1/a", "d-r2/b"), status("d-r1/a", "d-r2/b"), None),
        (status("d-r1/a", "d-r2/b"), status("d-r2/b"), None),
        (status("d-r1/a", "d-r2/b"), status("d-r1/a", "d-r3/c"), "revision d-r3 hydrates"),
        (status("d-r1/a", "d-r2/b"), status("d-r2/b", "d-r3/c"), "d-r3 hydrates, and takes over from d-r2"),
        # an edit that was refused before is refused still, as far as is known
        (status("d-r1/a", refused="no"), status("d-r1/a", refused="no"), None),
    ],
)
def test_the_outcome_is_read_from_the_status(before: Status, after: Status, says: str | None) -> None:
    told = replan.outcome("d", before, after)
    assert told is None if says is None else says in str(told)


def test_a_refusal_is_an_error() -> None:
    with pytest.raises(CliError, match="R: no table x"):
        replan.outcome("d", status("d-r1/a"), status("d-r1/a", refused="no table x"))


class Cluster:
    """Answers kubectl: the object before the patch is seen, then these statuses, the last one again and again."""

    def __init__(self, *statuses: Status) -> None:
        self.statuses, self.called = list(statuses), list[tuple[Kubectl, tuple[str, ...]]]()

    def run(self, kubectl: Kubectl, purpose: str, *arguments: str) -> CompletedProcess[str]:
        self.called.append((kubectl, arguments))
        if not self.statuses:
            return CompletedProcess([], 1, "", 'Error from server (NotFound): dataflows "d" not found\n')
        now = self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0]
        return CompletedProcess([], 0, json.dumps({"status": now}), "")


def cluster(monkeypatch: pytest.MonkeyPatch, *statuses: Status) -> Cluster:
    made = Cluster(*statuses)
    monkeypatch.setattr(Kubectl, "run", lambda kubectl, *arguments: made.run(kubectl, *arguments))
    monkeypatch.setattr(replan, "POLL_SECONDS", 0.0)
    return made


def test_must_replan_patches_the_annotation_as_the_kubeconfigs_user(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With another value each time, and waits until the operator has seen it. No gateway is asked."""
    values = []
    for _ in range(2):
        made = cluster(monkeypatch, status("d-r1/a"), status("d-r1/a"), status("d-r1/a", "d-r2/b"))
        assert main(["replan", "d", "-n", "team-a", "--kubeconfig", "/k", "--context", "c"]) == 0
        assert "revision d-r2 hydrates" in capsys.readouterr().out
        (kubectl, patched), *asked = made.called
        assert kubectl == Kubectl(Path("/k"), "c")
        assert patched[:4] == ("patch", f"{replan.KIND}/d", "-n", "team-a")
        patch = json.loads(patched[patched.index("--patch") + 1])
        values.append(patch["metadata"].pop("annotations")["compute.tidemark.dev/replan"])
        assert patch == {"metadata": {}}
        assert [arguments[0] for _, arguments in asked] == ["get", "get"]
    assert len(set(values)) == 2


def test_an_operator_that_is_away_is_not_waited_for_forever(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The edit is stored, and the command says where its outcome will be."""
    cluster(monkeypatch, status("d-r1/a"))
    monkeypatch.setattr(replan, "OUTCOME_SECONDS", 0.01)
    assert main(["replan", "d", "-n", "team-a"]) == 0
    assert "is stored, and is not planned yet: `kubectl describe dataflow d -n team-a`" in capsys.readouterr().out


def test_what_the_api_server_refuses_is_an_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """No right to patch, or no such object: kubectl says which."""
    cluster(monkeypatch)
    assert main(["replan", "d", "-n", "team-a"]) == 1
    assert capsys.readouterr().err == 'error: (NotFound): dataflows "d" not found\n'
