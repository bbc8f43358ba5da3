"""The error of a command itself. It ends the command with exit status 1 and one line on standard error, as do those
of the client (tidemark/errors.py). Wrong flags and arguments are click.UsageError, with exit status 2.
"""

from __future__ import annotations


class CliError(Exception):
    """Its text is printed after `error: `."""
