"""Errors that end a command with one line.

CliError
├── GatewayUnknown     nobody said where the gateway is
└── GatewayFailed      the gateway cannot be reached, or refused
"""

from __future__ import annotations


class CliError(Exception):
    """Root of the command line's errors; its text is the line that the user sees."""


class GatewayUnknown(CliError):
    """No file that tells the gateway's address was found."""


class GatewayFailed(CliError):
    """The call failed; the text says why and what to do."""
