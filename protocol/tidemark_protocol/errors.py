"""Errors of messages, plans and certificates.

ProtocolError
├── MalformedPlan          bytes that are not the canonical form of a plan
├── MalformedFrame         a frame that cannot be decoded: unknown version, unset message, bad field
├── PlanNotAllowed         a plan with a function outside the allow-list, or one that does not type
├── StageViolation         a command that the current stage of the conversation does not allow
├── BatchTooLarge          a record batch of an answer has more bytes than its reader takes
├── StreamBroken           an Arrow stream that is not complete
└── CertificateUnreadable  a folder without a valid certificate, its key and authorities
"""

from __future__ import annotations


class ProtocolError(Exception):
    """Root of the protocol's errors."""


class MalformedPlan(ProtocolError):
    """The bytes are not a plan: wrong JSON, unknown node, unknown or missing field, too deep or too large."""


class MalformedFrame(ProtocolError):
    """The frame cannot be decoded. The connection ends; the replica goes on."""


class PlanNotAllowed(ProtocolError):
    """The plan is well-formed, but uses a function that is not allowed, or does not type."""


class StageViolation(ProtocolError):
    """A command arrived in a stage of the conversation that does not allow it."""


class BatchTooLarge(ProtocolError):
    """A record batch of an answer has more bytes than its reader holds."""


class StreamBroken(ProtocolError):
    """An Arrow stream ends in the middle, or is none."""


class CertificateUnreadable(ProtocolError):
    """A file is missing, half written, or not valid. The message never quotes the file."""
