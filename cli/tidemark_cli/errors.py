"""Errors that end a command with exit status 1 and one line on standard error.

CliError
├── GatewayUnknown     the command found no gateway's address
└── GatewayFailed      the gateway, or the way to it, failed or refused the call

Wrong flags and arguments are click.UsageError, with exit status 2.
"""

from __future__ import annotations


class CliError(Exception):
    """Root of the command line's errors. Its text is printed after `error: `."""


class GatewayUnknown(CliError):
    """No file and no object of the cluster holds the gateway's address."""


class GatewayFailed(CliError):
    """The gateway cannot be reached, or refuses the call. The text says why and what to do; `code` is gRPC's, if there
    is one."""

    def __init__(self, text: str, code: object = None) -> None:
        super().__init__(text)
        self.code = code
