"""What the process that serves and its workers say to each other (framing.py: how).

                                        ◄─  READY, once
PLAN or QUERY, then the request         ─►
                                        ◄─  ON or OVER, then the outcome: OVER where the worker is of no use after it
                                        ◄─  MALFORMED, then why the request cannot be understood
"""

from __future__ import annotations

from tidemark_protocol.messages.planning import Diagnostic, Refused
from tidemark_protocol.plan.codec import encode

READY = b"ready"
PLAN, QUERY = b"p", b"q"
ON, OVER, MALFORMED = b"+", b"-", b"?"


def refused(code: str, message: str) -> bytes:
    """An outcome."""
    return encode(Refused((Diagnostic(code, message),)))
