"""What can go wrong in a replica.

ReplicaError
├── EpochRefused        a client of an older epoch than one that was served already
├── ConfigChanged       CreateInstance with another configuration than the running one: the process must end
├── ClientTooSlow       a client that does not read what it asked for
├── StreamBroken        a client's stream that ended without an end
├── SourceNotReadable   a source whose tables cannot be told
├── ScratchInUse        the scratch folder belongs to another process
├── AddressNotUsable    the server cannot listen where it was told to
├── ExecutorsLeft       executors of an earlier process that cannot be deleted
├── ExecutorsRefused    executors that the API server does not admit: Spark is not started
├── PodsNotAsked        the API server does not say what there is of executors
├── SparkNotStarted     the Spark session does not start; the message says why
├── StashFull           more large answers wait to be fetched than may
├── StashGone           an answer that is not kept any more
└── DataflowRefused     a dataflow that this replica cannot render; it stays at its as_of and harms no other
"""

from __future__ import annotations

from tidemark_protocol.ids import Epoch


class ReplicaError(Exception):
    """Root of the replica's errors."""


class EpochRefused(ReplicaError):
    """The client is not newer than one that this replica has served."""

    def __init__(self, offered: Epoch, served: Epoch) -> None:
        super().__init__(f"epoch {offered} is not newer than {served}, which this replica has served")
        self.served = served


class ConfigChanged(ReplicaError):
    """The instance's configuration differs from the one this process runs with: restart the process."""


class ClientTooSlow(ReplicaError):
    """More bytes wait for the client than may wait; the connection ends, the replica goes on."""


class StreamBroken(ReplicaError):
    """The connection is gone: there is no one to tell."""


class SourceNotReadable(ReplicaError):
    """InspectSource found nothing it could make sense of; the message says what to change."""


class ScratchInUse(ReplicaError):
    """Two replica processes must not share a scratch folder."""


class AddressNotUsable(ReplicaError):
    """The address is taken, or may not be bound."""


class ExecutorsLeft(ReplicaError):
    """The API server does not delete them, or does not answer."""


class ExecutorsRefused(ReplicaError):
    """A quota, a limit, a missing account: the message is the API server's."""


class PodsNotAsked(ReplicaError):
    """The API server does not answer, or not about pods."""


class SparkNotStarted(ReplicaError):
    """There is no Spark session for now: it is tried again, ever more rarely."""


class StashFull(ReplicaError):
    """There is no room for another large answer."""


class StashGone(ReplicaError):
    """The answer was let go, or was never here."""


class DataflowRefused(ReplicaError):
    """The dataflow cannot be rendered here."""
