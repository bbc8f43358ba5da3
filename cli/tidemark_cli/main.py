"""`tidemark`, and as a plugin `kubectl tidemark`: the group of commands, and what its errors become.

    kubectl tidemark query 'SELECT carrier, flights FROM delays ORDER BY flights DESC LIMIT 5'
    kubectl tidemark frontiers

Rows go to standard output, everything else to standard error. The exit status is 0; 1 where the command failed, with
one line that begins with `error: `; 2 for wrong flags or arguments; 130 after Ctrl-C, 143 after SIGTERM.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from types import FrameType

import click
from click.shell_completion import CompletionItem

from tidemark.errors import Error
from tidemark_cli import completion
from tidemark_cli.errors import CliError
from tidemark_cli.output.text import printable_lines
from tidemark_protocol.version import release

PROGRAM = "kubectl tidemark"
COMMANDS = {
    "query": "Print the answer to a SELECT",
    "subscribe": "Print what a query or an export holds, then every change to it",
    "copy": "Write what a query or an export holds to files",
    "insert": "Insert, upsert or delete rows of a DataSource of kind table",
    "frontiers": "List how far tables and exports are complete",
    "top": "List dataflows by the state that they keep and the processor time that they take",
    "files": "List the files of a DataSource; let one go, or have it read again",
    "tables": "List the tables in storage that no object has; or delete one",
    "why": "Explain what holds a frontier back",
    "explain": "Print the plan of a Dataflow or of a SELECT",
    "replan": "Have a Dataflow planned anew, by the row counts of now",
    "completion": "Print the completion script of a shell",
}
"""Module of `commands` and short help of each command."""


class Commands(click.Group):
    """The group. It imports the module of the command that is called, and no other: that keeps help fast."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        command: click.Command = getattr(import_module(f"tidemark_cli.commands.{name}"), name)
        return command

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write(f"{self.help}\n")
        with formatter.section("Available Commands"):
            formatter.write_dl(list(COMMANDS.items()))
        click.Command.format_options(self, ctx, formatter)
        formatter.write(f"\nUsage:\n  {PROGRAM} COMMAND [OPTIONS]\n")
        formatter.write(f'\nUse "{PROGRAM} COMMAND --help" for more information about a command.\n')

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        found = [CompletionItem(name, help=text) for name, text in COMMANDS.items() if name.startswith(incomplete)]
        return found + click.Command.shell_complete(self, ctx, incomplete)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(release(), message="%(version)s")
def tidemark() -> None:
    """Query SQL views that Tidemark keeps up to date, and see how far they are."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command, by default that of the program's arguments; returns its exit status."""
    if instruction := os.environ.get(completion.VARIABLE):
        return completion.complete(tidemark, instruction)
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")  # gRPC notes the loss of a connection in the midst of a live table
    try:
        with (
            _left_on_sigterm(),
            tidemark.make_context(PROGRAM, list(sys.argv[1:] if arguments is None else arguments)) as context,
        ):
            tidemark.invoke(context)
        sys.stdout.flush()
        return 0
    except click.exceptions.Exit as ended:  # by --help and --version
        return ended.exit_code
    except click.UsageError as error:
        _print_usage_error(error)
        return error.exit_code
    except (CliError, Error) as error:
        print(f"error: {printable_lines(str(error))}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("canceled", file=sys.stderr)
        return 130
    except BrokenPipeError:  # a reader such as `head` ends first
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


@contextmanager
def _left_on_sigterm() -> Iterator[None]:
    """SIGTERM leaves the block in order, so that no kubectl that forwards a port stays."""

    def leave(number: int, _: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = signal.getsignal(signal.SIGTERM)
    ours = threading.current_thread() is threading.main_thread() and before is signal.SIG_DFL
    if ours:
        signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        if ours:
            signal.signal(signal.SIGTERM, before)


def _print_usage_error(error: click.UsageError) -> None:
    """Print what is wrong, and which help has the right form."""
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        error.show()
        return
    path = error.ctx.command_path if error.ctx else PROGRAM
    print(f"error: {printable_lines(error.format_message())}\nSee '{path} --help' for usage.", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
