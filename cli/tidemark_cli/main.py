"""`tidemark`, and as a plugin `kubectl tidemark`.

    kubectl tidemark query 'SELECT carrier, flights FROM delays ORDER BY flights DESC LIMIT 5'
    kubectl tidemark frontiers
    kubectl tidemark explain delays
    kubectl tidemark subscribe delays
    kubectl tidemark copy delays --to delays/2026-01-31 --format parquet
    kubectl tidemark why delays

Rows go to standard output, everything else to standard error; an error is one line and exit status 1.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from tidemark_cli import cluster, copying, explain, frontiers, gateway, query, subscribe, times, why
from tidemark_cli.errors import CliError
from tidemark_protocol.pb.gateway_pb2 import QueryRequest
from tidemark_protocol.release import release


def parser() -> argparse.ArgumentParser:
    """The commands and their options, named as kubectl names them."""
    top = argparse.ArgumentParser(prog="kubectl tidemark", description="SQL views that are always up to date")
    top.add_argument("--version", action="version", version=release())
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    ask = commands.add_parser(
        "query", help="the answer to a SELECT", description="Answers a SELECT over exports and tables, as of one time."
    )
    ask.add_argument("sql", help="rows of one export are read at once; joins, aggregates, ... are computed for it")
    ask.add_argument("--as-of", metavar="TIME", help="milliseconds since 1970, or 2026-01-31T12:00 (newest complete)")
    ask.add_argument("--strict", action="store_true", help="wait until the answer has all that is ingested by now")
    ask.add_argument("--instance", default="", help="where it is computed, if there are several ComputeInstances")
    ask.add_argument("--replica", default="", help="the only ComputeReplica that may answer; the query fails with it")
    show = commands.add_parser("frontiers", help="how far everything is", description="How far everything is.")
    show.add_argument("-A", "--all-namespaces", action="store_true", help="of all namespaces")
    reason = commands.add_parser("why", help="what holds a frontier back", description="What holds a frontier back.")
    reason.add_argument("name", metavar="NAME", help="a Dataflow or DataSource, or an export or table of one")
    follow, write = subscribe.add_to(commands), copying.add_to(commands)
    for command in (ask, write):
        command.add_argument("--timeout", metavar="DURATION", help="give up after 30s, 5m, 1h30m ... (the gateway's)")
    for command in (ask, show, reason, follow, write):
        command.add_argument("-o", "--output", choices=("table", "json"), default="table", help="(%(default)s)")
    tell = commands.add_parser("explain", help="the plan of a view", description="The plan of a view, as a tree.")
    tell.add_argument("subject", metavar="NAME|SQL", help="a Dataflow, or a SELECT as a Dataflow could have it")
    for command in (ask, show, tell, reason, follow, write):
        command.add_argument("-n", "--namespace", default="default", help="(%(default)s)")
        where = command.add_mutually_exclusive_group()
        where.add_argument("--gateway-file", metavar="FILE", help="where an operator of this machine says where it is")
        where.add_argument("--server", metavar="HOST:PORT", help="the gateway's address")
        where.add_argument(
            "--operator-namespace",
            default=cluster.NAMESPACE,
            help="else, where the chart is installed: kubectl forwards a port to who leads there (%(default)s)",
        )
        command.add_argument("--certificate-authority", metavar="FILE", type=Path, help="who signed --server")
        who = command.add_mutually_exclusive_group()
        who.add_argument("--service-account", metavar="NAME", help="ask as this one, of the same namespace")
        who.add_argument("--token-file", metavar="FILE", type=Path, help="a token for audience tidemark-gateway")
        who.add_argument("--client-certificate", action="store_true", help="ask as kubectl's user, by certificate")
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; returns its exit status."""
    options = parser().parse_args(arguments)
    try:
        life = gateway.TOKEN_LIFE_OF_SUBSCRIBES if options.command == "subscribe" else gateway.TOKEN_LIFE
        shown = (options.service_account, options.namespace, options.token_file, options.client_certificate, life)
        credentials = gateway.Credentials(*shown)
        place = (options.gateway_file, options.server, options.certificate_authority, options.operator_namespace)
        found = gateway.find(gateway.Place(*place), dict(os.environ), credentials)
        if options.command == "frontiers":
            frontiers.run(found, options.namespace, options.all_namespaces, options.output, sys.stdout)
        elif options.command == "why":
            why.run(found, options.namespace, options.name, options.output, sys.stdout)
        elif options.command == "subscribe":
            subscribe.run(found, subscribe.asked(options), options.output, sys.stdout)
        elif options.command == "copy":
            copying.run(found, copying.asked(options), options.output, sys.stdout, times.seconds(options.timeout))
        elif options.command == "explain":
            explain.run(found, options.namespace, options.subject, sys.stdout)
        else:
            as_of = times.parse(options.as_of) if options.as_of else None
            request = QueryRequest(
                namespace=options.namespace,
                sql=options.sql,
                as_of=as_of,
                instance=options.instance,
                strict=options.strict,
                replica=options.replica,
            )
            query.run(found, request, options.output, sys.stdout, times.seconds(options.timeout))
        sys.stdout.flush()
        return 0
    except CliError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("canceled", file=sys.stderr)
        return 130
    except BrokenPipeError:  # `... | head` has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


if __name__ == "__main__":
    sys.exit(main())
