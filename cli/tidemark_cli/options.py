"""Flags that commands share, with kubectl's names, and the form of a command's help."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, wraps
from inspect import cleandoc
from pathlib import Path
from textwrap import indent
from typing import Any

import click

from tidemark.gateway import discovery
from tidemark_cli import completion_names
from tidemark_cli.gateway_choice import PARAMETERS, locate
from tidemark_cli.output import times
from tidemark_protocol.times import parse

CommandFunction = Callable[..., None]


class _Parsed(click.ParamType[float]):
    """Text that a function of `times` turns into a number, or refuses with a ValueError."""

    def __init__(self, name: str, parse: Callable[[str], float]) -> None:
        self.name, self._parse = name, parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            return self._parse(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class _Option(click.Option):
    """An option that stands in a section of its own in the help."""

    def __init__(self, *arguments: Any, section: str, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.section = section


class Command(click.Command):
    """A command whose help has kubectl's order: description, examples (the epilog), options by section, usage."""

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write(f"{cleandoc(self.help or '')}\n")
        if self.epilog:
            formatter.write(f"\nExamples:\n{indent(self.epilog.strip(), '  ')}\n")
        self.format_options(ctx, formatter)
        formatter.write(f"\nUsage:\n  {ctx.command_path} {' '.join(self.collect_usage_pieces(ctx))}\n")

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        sections: dict[str, list[tuple[str, str]]] = {"Options": []}
        for option in self.get_params(ctx):
            if isinstance(option, click.Option) and (record := option.get_help_record(ctx)) is not None:
                sections.setdefault(getattr(option, "section", "Options"), []).append(record)
        for title, records in sections.items():
            with formatter.section(title):
                formatter.write_dl(records)


TIME = _Parsed("time", parse)
DURATION = _Parsed("duration", times.parse_duration)
FILE = click.Path(path_type=Path)

output = click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "json", "csv", "yaml"]),
    default="table",
    show_default=True,
    help="Output format.",
)
watch = click.option("-w", "--watch", is_flag=True, help="Go on, and show what changes. The command ends with Ctrl-C.")
timeout = click.option(
    "--timeout", type=DURATION, help="Give up after this long: 30s, 5m, 1h30m. The default is the gateway's limit."
)
instance = click.option(
    "--instance",
    default="",
    metavar="NAME",
    shell_complete=completion_names.instances,
    help="ComputeInstance that computes it, where the namespace has several.",
)

_of_kubeconfig = partial(click.option, cls=_Option, section="Kubeconfig options")
_of_gateway = partial(click.option, cls=_Option, section="Gateway options")
_GATEWAY_OPTIONS = (
    click.option(
        "-n",
        "--namespace",
        metavar="NAME",
        shell_complete=completion_names.namespaces,
        help="Namespace. The default is the context's.",
    ),
    _of_kubeconfig("--kubeconfig", type=FILE, metavar="FILE", help="Kubeconfig. The default is $KUBECONFIG."),
    _of_kubeconfig("--context", metavar="NAME", help="Context of the kubeconfig, which says the cluster and the user."),
    _of_gateway(
        "--operator-namespace",
        metavar="NAME",
        help="Namespace of the chart's release in the context's cluster. kubectl forwards a port to the leading "
        f"operator there.  [default: {discovery.OPERATOR_NAMESPACE}]",
    ),
    _of_gateway("--server", metavar="HOST:PORT", help="Address of the gateway."),
    _of_gateway(
        "--certificate-authority", type=FILE, metavar="FILE", help="Authority that signed --server's certificate, PEM."
    ),
    _of_gateway(
        "--gateway-file", type=FILE, metavar="FILE", help="File that an operator on this machine wrote: its address."
    ),
    _of_gateway("--service-account", metavar="NAME", help="Call as this ServiceAccount of the namespace."),
    _of_gateway(
        "--token-file", type=FILE, metavar="FILE", help="Call with this token, which has the audience tidemark-gateway."
    ),
    _of_gateway("--client-certificate", is_flag=True, help="Call as the context's user, by its client certificate."),
)


def calls_gateway(
    token_lifetime: str = discovery.TOKEN_LIFETIME, *, again: bool = False
) -> Callable[[CommandFunction], CommandFunction]:
    """Adds the options that select the gateway. The command gets what they select as `gateway` and `namespace`.
    `again`: it gets as `gateway` a function that finds the gateway anew, for calls that outlive an operator."""

    def decorate(function: CommandFunction) -> CommandFunction:
        @wraps(function)
        def command(**given: Any) -> None:
            find, namespace = locate(given, token_lifetime)
            others = {name: value for name, value in given.items() if name not in PARAMETERS}
            function(gateway=find if again else find(), namespace=namespace, **others)

        for option in reversed(_GATEWAY_OPTIONS):
            option(command)
        return command

    return decorate
