"""Python reads this as a process starts whose PYTHONPATH has this folder: a replica sends no Status. It writes the
kinds that it keeps back into a file of the folder. While the folder has a file `repeated-only`, the replica sends no
Failure of an attempt either, but those alone that it repeats to a new client."""

from __future__ import annotations

import sys
from pathlib import Path


def say_no_status() -> None:
    """Before the replica makes its first outbox."""
    from tidemark_protocol.messages.responses import Failure, Response, Status
    from tidemark_replica.events.outbox import Outbox

    put, kept_back = Outbox.put, Path(__file__).with_name("kept-back")
    repeated_only = Path(__file__).with_name("repeated-only")

    def without_statuses(self: Outbox, response: Response) -> None:
        if isinstance(response, Failure) and not response.repeated and repeated_only.exists():
            return
        if not isinstance(response, Status):
            put(self, response)
            return
        with kept_back.open("a") as file:
            file.write(f"{response.kind}\n")

    Outbox.put = without_statuses  # type: ignore[method-assign]


if "tidemark_replica" in sys.orig_argv:
    say_no_status()
