"""A destination: what keeps a view's rows outside of its shard, as an ordinary table, in a database, or in a log.

    Publisher ──when──► Destination.publish(time, term) ──► the shard's updates since the destination's own time,
                                                            applied together with the new time, in one step

The destination holds its own progress, with the writer term that fences earlier revisions. So any replica may publish,
at any time, twice too: nothing is kept in the replica.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from tidemark_persist import PersistError
from tidemark_protocol.ids import Time, WriterTerm

IDLE_MS = 60_000
"""Milliseconds after which a publication records the newer time in the destination although the view has not
changed."""


class SinkViewInError(PersistError):
    """The view has errors at the time: the destination keeps what it has."""


class DestinationStopped(PersistError):
    """A destination cannot take the view as it is. `reason`: CamelCase, for the condition. The text: what is wrong, and
    what to do."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class DestinationFailed(PersistError):
    """The destination could not be written for now: it is tried again."""


@dataclass(frozen=True)
class Reached:
    """The outcome of a publication. `time`: what the destination says. `checked`: the last time at which its contents
    are the view's too. `fields`: further fields of the status. `anew_because`: why all contents were written anew;
    empty where they were not. `again_seconds`: after so long the same time is to be published again, since a part that
    follows the destination is not there yet; 0: it is."""

    time: Time
    checked: Time
    fields: Mapping[str, str] = field(default_factory=dict)
    anew_because: str = ""
    again_seconds: float = 0.0


class Destination(Protocol):
    """One destination of one view. Its methods run on a pool, one at a time, but for `progress_time`, `interrupt` and
    `close`."""

    @property
    def kind(self) -> str:
        """The kind of its Status."""

    def publish(self, time: Time, term: WriterTerm) -> Reached:
        """Gives the destination the contents at `time`, a complete time of the shard; changes nothing where it has
        those of that time or a later one. Raises PersistError and OSError: the destination has the contents of one
        time, before or after."""

    def progress_time(self, contents: str) -> Time | None:
        """The time of the view's contents that the destination has; None where they are not of the shard's `contents`
        (its `contents_id`), or there are none. Changes nothing, and may run beside a publication. Raises
        PersistError and OSError."""

    def clean(self) -> None:
        """Deletes what nothing refers to any more; called about once an hour. Raises PersistError and OSError."""

    def interrupt(self) -> None:
        """Ends a publication that runs, soon, where the destination can: it has the contents of one time, before or
        after. Later publications fail then. Never waits; from any thread."""

    def close(self) -> None:
        """Releases what is kept between publications, after `interrupt`. A publication may still be running."""
