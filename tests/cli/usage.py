"""Whether the command line takes a command as it stands, without running it."""

from __future__ import annotations

from collections.abc import Sequence

from tidemark_cli.main import PROGRAM, tidemark


def check_usage(words: Sequence[str]) -> None:
    """`words`: those after the program's name. Raises click.UsageError."""
    with tidemark.make_context(PROGRAM, list(words), resilient_parsing=True) as group:
        name, command, rest = tidemark.resolve_command(group, list(words))
    assert name is not None
    assert command is not None
    command.make_context(name, rest)
