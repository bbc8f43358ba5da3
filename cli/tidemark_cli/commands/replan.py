"""`kubectl tidemark replan NAME`: a new plan of a Dataflow, by the row counts of now, as an edit of its object.

    kubectl patch dataflow NAME     annotation compute.tidemark.dev/replan = the present time
    kubectl get dataflow NAME       until its status says what became of the edit

With --dry-run the gateway plans it, and nothing is changed.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import click

from tidemark.errors import GatewayFailed
from tidemark.gateway.channel import CALL_SECONDS, connected
from tidemark.gateway.discovery import Gateway
from tidemark.gateway.kubectl import Kubectl
from tidemark_cli import completion_names
from tidemark_cli.errors import CliError
from tidemark_cli.options import Command, calls_gateway
from tidemark_cli.output.terminal import show_elapsed_time
from tidemark_cli.output.text import printable, printable_lines
from tidemark_protocol.pb.gateway_pb2 import ExplainRequest

_EXAMPLES = """
# Have a Dataflow planned anew, by the row counts of now
kubectl tidemark replan revenue -n team-a

# Print the plan that it has and the one that it would get, and change nothing
kubectl tidemark replan revenue -n team-a --dry-run
"""
KIND = "dataflow.compute.tidemark.dev"
ANNOTATION = "compute.tidemark.dev/replan"
OUTCOME_SECONDS, POLL_SECONDS = 60.0, 0.5
Status = Mapping[str, Any]


@click.command(cls=Command, epilog=_EXAMPLES)
@click.argument("name", shell_complete=completion_names.dataflows)
@click.option("--dry-run", is_flag=True, help="Print the present plan and the new one, and change nothing.")
@calls_gateway(again=True)
def replan(gateway: Callable[[], Gateway], namespace: str, name: str, dry_run: bool) -> None:
    """Have a Dataflow planned anew, by the row counts of now.

    A Dataflow keeps its plan, and the row counts that the plan was chosen by. The kubeconfig's user edits an annotation
    of it. Where the new plan is another one, it hydrates beside the present one, and takes over as that of any edit.
    """
    if dry_run:
        _print_plans(gateway(), namespace, name)
        return
    given = click.get_current_context().params
    kubectl = Kubectl(given.get("kubeconfig"), given.get("context"))
    before = _annotate(kubectl, namespace, name)
    print(_await_outcome(kubectl, namespace, name, before))


def outcome(name: str, before: Status, status: Status) -> str | None:
    """The outcome of the edit, by the status before and after it; None: nothing yet.

    Raises:
        CliError: the planner refuses the Dataflow.
    """
    active, pending = _revision(status), _revision(status.get("pending") or {})
    known = {of.get("specDigest") for of in (_revision(before), _revision(before.get("pending") or {}))}
    if pending and pending.get("specDigest") not in known:
        return (
            f"Dataflow {name} is planned anew: revision {pending.get('name')} hydrates, and takes over from "
            f"{active.get('name')} then."
        )
    if active and active.get("specDigest") not in known:
        if active.get("name") == _revision(before).get("name"):
            return f"Dataflow {name} has this plan by the row counts of now, too: nothing changes."
        return f"Dataflow {name} is planned anew: revision {active.get('name')} serves."
    refused = _refusal(status)
    if refused and refused != _refusal(before):
        raise CliError(f"Dataflow {name} cannot be planned: {printable(refused)}")
    return None


def _annotate(kubectl: Kubectl, namespace: str, name: str) -> Status:
    """Returns the status that the object had then."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    patch = json.dumps({"metadata": {"annotations": {ANNOTATION: now}}})
    object = f"{KIND}/{name}"
    return _status(kubectl, "patch", object, "-n", namespace, "--type", "merge", "--patch", patch, "-o", "json")


def _await_outcome(kubectl: Kubectl, namespace: str, name: str, before: Status) -> str:
    status: Status = {}
    until = time.monotonic() + OUTCOME_SECONDS
    with show_elapsed_time("the planner"):
        while time.monotonic() < until:
            try:
                status = _status(kubectl, "get", f"{KIND}/{name}", "-n", namespace, "-o", "json")
            except CliError:  # the edit is stored, and the API server may answer again
                time.sleep(POLL_SECONDS)
                continue
            if (text := outcome(name, before, status)) is not None:
                return text
            time.sleep(POLL_SECONDS)
    refused = _refusal(status)
    return (
        f"The edit of Dataflow {name} is stored, and is not planned yet"
        + (f" ({printable(refused)})" if refused else "")
        + f": `kubectl describe dataflow {name} -n {namespace}` will say what became of it."
    )


def _status(kubectl: Kubectl, *arguments: str) -> Status:
    """The status of the object that kubectl prints. Raises CliError."""
    done = kubectl.run("replan", *arguments)
    if done.returncode:
        raise CliError(printable(done.stderr.strip().removeprefix("Error from server ")) or "kubectl failed")
    status: Status = json.loads(done.stdout).get("status") or {}
    return status


def _revision(of: Status) -> Status:
    found: Status = of.get("revision") or {}
    return found


def _refusal(status: Status) -> str:
    """The reason why there is no plan of the present spec; empty: there is one, or it is being made."""
    conditions = status.get("conditions") or ()
    refused = (
        c for c in conditions if c["type"] == "Planned" and c["status"] == "False" and c["reason"] != "WaitingForInputs"
    )
    return next((f"{c['reason']}: {c['message']}" for c in refused), "")


def _print_plans(gateway: Gateway, namespace: str, name: str) -> None:
    """Raises GatewayFailed where the operator cannot plan so."""
    with connected(gateway) as stub:
        asked = [ExplainRequest(namespace=namespace, subject=name, replan=replan) for replan in (False, True)]
        present, new = (stub.Explain(each, metadata=gateway.metadata, timeout=CALL_SECONDS) for each in asked)
    if not new.replan:
        raise GatewayFailed("the operator is of an earlier version, and cannot show the plan that replan would give")
    if new.replan == "same":
        click.echo(f"Dataflow {name} has the plan that it would get: nothing would change (dry run):\n")
    else:
        click.echo(f"Dataflow {name} has this plan:\n\n{printable_lines(present.text)}\n")
        click.echo("It would get this one (dry run):\n")
    click.echo(printable_lines(new.text), nl=False)
