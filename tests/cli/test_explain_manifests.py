"""`kubectl tidemark explain -f`: which manifests reach the gateway, and how their plans are printed."""

from __future__ import annotations

import io
import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import pytest

from tests.cli.test_commands import Scripted, gateway
from tidemark_cli.main import main
from tidemark_protocol.pb import gateway_pb2 as pb

__all__ = ["gateway"]

MANIFESTS = """\
apiVersion: v1
kind: Namespace
metadata: {name: prod}
---
apiVersion: compute.tidemark.dev/v1alpha1
kind: Dataflow
metadata: {name: a, annotations: {on: 2026-01-01T00:00:00Z}}
spec: {instance: default, sql: SELECT 1, index: {}}
---
apiVersion: v1
kind: List
items:
- apiVersion: compute.tidemark.dev/v1alpha1
  kind: Dataflow
  metadata: {name: b, namespace: prod}
  spec: {instance: default, sql: SELECT 2, index: {}}
"""


def explained(request: pb.ExplainRequest, body: dict[str, Any]) -> pb.ExplainedManifest:
    """The plan of a manifest, by the gateway."""
    name, text = body["metadata"]["name"], f"{body['spec']['sql']} in {request.namespace}"
    plan = json.dumps({"objects": [text]}) if request.output == "json" else f"{text} as {request.output}"
    return pb.ExplainedManifest(name=name, text=f"{plan}\n")


@pytest.fixture(autouse=True)
def explains_manifests(monkeypatch: pytest.MonkeyPatch) -> None:
    def explain(_: Scripted, request: pb.ExplainRequest, context: grpc.ServicerContext) -> pb.ExplainReply:
        bodies = [json.loads(each) for each in request.manifests]
        return pb.ExplainReply(output=request.output, manifests=map(partial(explained, request), bodies))

    monkeypatch.setattr(Scripted, "Explain", explain)


def test_explain_of_a_file_prints_the_plans_of_its_dataflows(
    gateway: Scripted, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the namespace that each names, else in that of -n; other objects are left out, and lists are opened."""
    file = tmp_path / "views.yaml"
    file.write_text(MANIFESTS)
    both = "Dataflow a:\n\nSELECT 1 in prod as text\n\nDataflow b:\n\nSELECT 2 in prod as text\n"
    for where in (file, tmp_path):
        assert main(["explain", "-f", str(where), "-n", "prod"]) == 0
        assert capsys.readouterr().out == both
    monkeypatch.setattr(sys, "stdin", io.StringIO(MANIFESTS))
    assert main(["explain", "b", "-f", "-", "-n", "prod", "-o", "mermaid"]) == 0
    assert capsys.readouterr().out == "SELECT 2 in prod as mermaid\n"
    assert main(["explain", "-f", str(file), "-o", "json"]) == 0
    items = json.loads(capsys.readouterr().out)["items"]
    assert [(each["namespace"], each["name"]) for each in items] == [("default", "a"), ("prod", "b")]
    assert items[1]["objects"] == ["SELECT 2 in prod"]


@pytest.mark.parametrize(
    ("text", "arguments", "said"),
    [
        (MANIFESTS, ("-n", "other"), "Dataflow b is of namespace prod, not of other"),
        (MANIFESTS, ("c",), "there is no Dataflow c in "),
        (MANIFESTS, ("-o", "mermaid"), "a flow chart is of one Dataflow: name one of a, b"),
        (MANIFESTS, ("--analyze",), "--analyze is of a Dataflow that runs"),
        ("kind: Namespace", (), "there is no Dataflow in "),
        ("kind: [", (), "cannot be read"),
        ("kind: Dataflow\napiVersion: compute.tidemark.dev/v1alpha1", (), "has no metadata.name"),
    ],
)
def test_explain_of_a_file_refuses_what_it_cannot_do(
    gateway: Scripted,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    text: str,
    arguments: tuple[str, ...],
    said: str,
) -> None:
    (tmp_path / "views.yaml").write_text(text)
    assert main(["explain", "-f", str(tmp_path / "views.yaml"), *arguments]) != 0
    assert said in capsys.readouterr().err
    assert main(["explain", "-f", str(tmp_path / "none.yaml")]) == 1
    assert "cannot be read" in capsys.readouterr().err
    assert main(["explain"]) == 2
    assert "name a Dataflow, write a SELECT, or give a file" in capsys.readouterr().err
