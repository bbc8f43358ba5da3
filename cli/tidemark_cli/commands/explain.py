"""`kubectl tidemark explain`: the plan of a Dataflow, of a SELECT, or of manifests that are not applied."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from tidemark.errors import GatewayFailed
from tidemark.gateway.channel import CALL_SECONDS, connected
from tidemark.gateway.discovery import Gateway
from tidemark_cli import completion_names
from tidemark_cli.errors import CliError
from tidemark_cli.manifests import in_namespace, read_dataflows
from tidemark_cli.options import FILE, Command, calls_gateway
from tidemark_cli.output.text import printable_lines
from tidemark_protocol.explained_plan import OUTPUTS
from tidemark_protocol.pb.gateway_pb2 import ExplainRequest

_EXAMPLES = """
# Print the plan that replicas run for a Dataflow
kubectl tidemark explain delays -n team-a

# Print beside each operator what it holds and has cost on each replica
kubectl tidemark explain delays --analyze

# Print the plan that a SELECT would have as a Dataflow
kubectl tidemark explain 'SELECT carrier, count(*) FROM flights GROUP BY carrier'

# Print the plans that the Dataflows of a file would have, before they are applied
kubectl tidemark explain -f dataflow.yaml

# Draw the plan of a Dataflow as a flow chart
kubectl tidemark explain delays -o mermaid > delays.mmd
"""
TEXT, JSON, MERMAID = OUTPUTS


@click.command(cls=Command, epilog=_EXAMPLES)
@click.argument("subject", metavar="[NAME|SQL]", default="", shell_complete=completion_names.dataflows)
@click.option(
    "-f",
    "--filename",
    "files",
    multiple=True,
    type=FILE,
    metavar="FILE",
    help="Explain the Dataflows of this file or folder (-: standard input), which need not be applied; NAME: this one "
    "of them alone.",
)
@click.option(
    "-o",
    "--output",
    type=click.Choice(OUTPUTS),
    default=OUTPUTS[0],
    show_default=True,
    help="Output format: a tree, JSON, or a flow chart in Mermaid's language.",
)
@click.option(
    "--analyze",
    is_flag=True,
    help="Print also what each operator of a Dataflow holds and has cost on each replica.",
)
@calls_gateway(again=True)
def explain(
    gateway: Callable[[], Gateway], namespace: str, subject: str, files: tuple[Path, ...], output: str, analyze: bool
) -> None:
    """Print the plan of a Dataflow or of a SELECT, as a tree."""
    if files:
        if analyze:
            raise click.UsageError("--analyze is of a Dataflow that runs: leave out -f")
        _print_unapplied(gateway, namespace, subject, files, output)
        return
    if not subject:
        raise click.UsageError("name a Dataflow, write a SELECT, or give a file: -f FILE")
    found = gateway()
    request = ExplainRequest(namespace=namespace, subject=subject, output=output, analyze=analyze)
    with connected(found) as stub:
        reply = stub.Explain(request, metadata=found.metadata, timeout=CALL_SECONDS)
    if (reply.output or TEXT) != output:
        raise GatewayFailed(f"the operator is of an earlier version, and prints text alone: leave out -o {output}")
    if analyze and not reply.analyzed:
        raise GatewayFailed("the operator is of an earlier version, and knows no --analyze")
    _print(reply.text)


def _print_unapplied(
    gateway: Callable[[], Gateway], namespace: str, name: str, files: tuple[Path, ...], output: str
) -> None:
    """Print the plans of the Dataflows of the files. Raises CliError, GatewayFailed."""
    given = read_dataflows(files)
    if name and name not in {manifest.name for manifest in given}:
        raise CliError(f"there is no Dataflow {name} in {', '.join(map(str, files))}")
    places = in_namespace(given, click.get_current_context().params.get("namespace"), namespace)
    printed = [manifest.name for manifest in given if name in ("", manifest.name)]
    if output == MERMAID and len(printed) > 1:
        raise CliError(f"a flow chart is of one Dataflow: name one of {', '.join(printed)}")
    found, plans = gateway(), list[tuple[str, str, str]]()
    for place, manifests in places.items():
        request = ExplainRequest(namespace=place, manifests=[each.json for each in manifests], output=output)
        seconds = CALL_SECONDS * len(manifests)  # each is planned by itself
        with connected(found) as stub:
            reply = stub.Explain(request, metadata=found.metadata, timeout=seconds)
        if not reply.manifests:
            raise GatewayFailed("the operator is of an earlier version, and explains no manifests")
        plans += [(place, each.name, each.text) for each in reply.manifests if name in ("", each.name)]
    if len(plans) == 1:
        _print(plans[0][2])
    elif output == JSON:
        items: list[Any] = [{"namespace": of, "name": name, **json.loads(text)} for of, name, text in plans]
        click.echo(json.dumps({"items": items}, indent=2))
    else:
        _print("\n".join(f"Dataflow {name}:\n\n{text}" for _, name, text in plans))


def _print(text: str) -> None:
    text = printable_lines(text)
    click.echo(text, nl=not text.endswith("\n"))
