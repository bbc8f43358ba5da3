"""Errors of the replica.

ReplicaError
├── EpochRefused           the client's epoch is not newer than one that was served
├── ConfigChanged          CreateInstance has another configuration than the running one: the process must end
├── ClientTooSlow          the client does not read what it asked for
├── ClientStreamBroken           the client's stream ended without a normal end
├── SourceNotReadable      the tables of a source cannot be determined
├── SourceNotReleased      what a deleted source keeps upstream cannot be ended
├── ScratchInUse           another process uses the scratch folder
├── AddressNotUsable       the server cannot listen at the address
├── ExecutorsNotDeleted    executor pods of an earlier process cannot be deleted
├── ExecutorsNotAdmitted   the API server does not admit executor pods: Spark is not started
├── PodsUnknown            the API server does not answer a question about pods
├── SparkNotStarted        the Spark session does not start
├── StashFull              the stash has no space for another large answer
├── StashNotFound          the stash does not hold the answer
└── DataflowRefused        this replica cannot render the dataflow; the dataflow stays at its as_of
"""

from __future__ import annotations

from tidemark_protocol.ids import Epoch


class ReplicaError(Exception):
    """Root of the replica's errors."""


class EpochRefused(ReplicaError):
    """The client's epoch is not newer than one that this replica has served. `served` is that epoch."""

    def __init__(self, offered: Epoch, served: Epoch) -> None:
        super().__init__(f"epoch {offered} is not newer than {served}, which this replica has served")
        self.served = served


class ConfigChanged(ReplicaError):
    """The client asks for another instance configuration than this process runs with. The process must be restarted."""


class ClientTooSlow(ReplicaError):
    """Too many bytes wait for the client. Its connection ends; the replica goes on."""


class ClientStreamBroken(ReplicaError):
    """The connection broke off, so no status can be sent."""


class SourceNotReleased(ReplicaError):
    """ReleaseSource could not end what a deleted source keeps upstream. The message says why."""


class SourceNotReadable(ReplicaError):
    """InspectSource could not determine the tables. The message says what to change."""


class ScratchInUse(ReplicaError):
    """Another replica process holds the lock of the scratch folder."""


class AddressNotUsable(ReplicaError):
    """The address is in use, or this user may not bind it."""


class ExecutorsNotDeleted(ReplicaError):
    """The API server refused to delete the executor pods of an earlier process, or did not answer."""


class ExecutorsNotAdmitted(ReplicaError):
    """The API server does not admit executor pods (a quota, a limit, a missing account). The message is the API
    server's."""


class PodsUnknown(ReplicaError):
    """The API server does not answer, or its answer is not about the pods."""


class SparkNotStarted(ReplicaError):
    """The Spark session does not start. The start is retried with growing pauses. The message has the reason."""


class StashFull(ReplicaError):
    """The stash has no space for another large answer."""


class StashNotFound(ReplicaError):
    """The answer was dropped, or was never stashed here."""


class DataflowRefused(ReplicaError):
    """This replica cannot render the dataflow. The message has the reason."""
