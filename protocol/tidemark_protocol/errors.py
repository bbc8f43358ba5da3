"""What can go wrong with a message or a plan.

ProtocolError
├── MalformedPlan          bytes that are not the canonical form of a plan of ours
├── MalformedFrame         a frame that cannot be understood: unknown version, unset message, bad field
├── PlanNotAllowed         a plan with a function outside the allow-list, or one that does not type
├── StageViolation         a message that the protocol's present stage does not allow
└── CertificateUnreadable  a folder that does not hold a certificate, its key and authorities
"""

from __future__ import annotations


class ProtocolError(Exception):
    """Root of the protocol's errors."""


class MalformedPlan(ProtocolError):
    """The bytes are not a plan: wrong JSON, unknown node, unknown or missing field, too deep or too large."""


class MalformedFrame(ProtocolError):
    """The frame cannot be understood; the connection ends, the replica goes on."""


class PlanNotAllowed(ProtocolError):
    """The plan is well-formed, but uses what is not allowed or does not type."""


class StageViolation(ProtocolError):
    """A command arrived in a stage of the protocol that does not allow it."""


class CertificateUnreadable(ProtocolError):
    """A file is missing, half written, or not what it should be; the message has nothing of its contents."""
