"""`kubectl tidemark explain`: the plan of a Dataflow, or of a SELECT that no Dataflow has yet."""

from __future__ import annotations

import click

from tidemark.errors import GatewayFailed
from tidemark.gateway.channel import CALL_SECONDS, connected
from tidemark.gateway.discovery import Gateway
from tidemark_cli import completion_names
from tidemark_cli.options import Command, calls_gateway
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

# Draw the plan of a Dataflow as a flow chart
kubectl tidemark explain delays -o mermaid > delays.mmd
"""


@click.command(cls=Command, epilog=_EXAMPLES)
@click.argument("subject", metavar="NAME|SQL", shell_complete=completion_names.dataflows)
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
@calls_gateway()
def explain(gateway: Gateway, namespace: str, subject: str, output: str, analyze: bool) -> None:
    """Print the plan of a Dataflow or of a SELECT, as a tree."""
    request = ExplainRequest(namespace=namespace, subject=subject, output=output, analyze=analyze)
    with connected(gateway) as stub:
        reply = stub.Explain(request, metadata=gateway.metadata, timeout=CALL_SECONDS)
    if (reply.output or OUTPUTS[0]) != output:
        raise GatewayFailed(f"the operator is of an earlier version, and prints text alone: leave out -o {output}")
    if analyze and not reply.analyzed:
        raise GatewayFailed("the operator is of an earlier version, and knows no --analyze")
    text = printable_lines(reply.text)
    click.echo(text, nl=not text.endswith("\n"))
