"""`kubectl tidemark explain`: the plan of a Dataflow, or of a SELECT that no Dataflow has yet."""

from __future__ import annotations

import click

from tidemark.gateway.channel import CALL_SECONDS, connected
from tidemark.gateway.discovery import Gateway
from tidemark_cli import completion_names
from tidemark_cli.options import Command, calls_gateway
from tidemark_cli.output.text import printable_lines
from tidemark_protocol.pb.gateway_pb2 import ExplainRequest

_EXAMPLES = """
# Print the plan that replicas run for a Dataflow
kubectl tidemark explain delays -n team-a

# Print the plan that a SELECT would have as a Dataflow
kubectl tidemark explain 'SELECT carrier, count(*) FROM flights GROUP BY carrier'
"""


@click.command(cls=Command, epilog=_EXAMPLES)
@click.argument("subject", metavar="NAME|SQL", shell_complete=completion_names.dataflows)
@calls_gateway()
def explain(gateway: Gateway, namespace: str, subject: str) -> None:
    """Print the plan of a Dataflow or of a SELECT, as a tree."""
    request = ExplainRequest(namespace=namespace, subject=subject)
    with connected(gateway) as stub:
        reply = stub.Explain(request, metadata=gateway.metadata, timeout=CALL_SECONDS)
    text = printable_lines(reply.text)
    click.echo(text, nl=not text.endswith("\n"))
