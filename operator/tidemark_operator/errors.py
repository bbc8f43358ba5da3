"""What can go wrong in the operator.

OperatorError
├── Waiting              something else must happen first; the object is looked at again when it has
├── Rejected             what the user asked for cannot be done as it is; an edit will help, a retry will not
├── LeadershipLost       another operator of a higher term is in charge: this process ends
├── PlannerUnavailable   the planner's process does not answer yet
├── GaveWay              to another that is at the planner for long; it is looked at again when that is done
├── RevisionUnreadable   a stored plan that this version cannot read
├── CertificateRefused   what should be a certificate of ours is not, or is somebody else's
├── SubscribeEnded       a subscribe that ended before its time
│   ├── SubscribeBehind  since its client is too slow
│   └── SubscribeRevoked since its client may not read this any more
├── AnswerLost           an answer that went with the replica that kept it
├── NotTaken             an answer that its client did not read while others waited
├── TookTooLong          an answer that was computed for longer than any may
└── QueryRefused         a query that cannot be answered as asked
    ├── TimeNotReadable  at the time asked for; at others it can
    ├── TooMany          as many run, or wait, as may
    ├── NotYet           perhaps soon: it is looked at again for a while
    │   ├── NothingComplete  there is no time yet at which it can be answered
    │   └── NobodyAnswers    no replica does, though there are some
    └── Changed          what it reads is not there any more
"""

from __future__ import annotations


class OperatorError(Exception):
    """Root of the operator's errors."""


class Waiting(OperatorError):
    """`reason` and the message go into a condition; nothing is wrong."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class Rejected(OperatorError):
    """`reason` and the message go into a condition, for the user to act on."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class LeadershipLost(OperatorError):
    """Another operator drives the replicas."""


class PlannerUnavailable(OperatorError):
    """The planner is starting, or was killed."""


class GaveWay(OperatorError):
    """It is planned when it is its turn."""


class RevisionUnreadable(OperatorError):
    """A ControllerRevision that does not hold a plan of ours."""


class CertificateRefused(OperatorError):
    """What is kept where a certificate should be cannot be used, and is not ours to replace."""


class QueryRefused(OperatorError):
    """The query names nothing, or a time that cannot be read."""


class TimeNotReadable(QueryRefused):
    """The time asked for is none, is past, or has not come; the message says which can be read."""


class TooMany(QueryRefused):
    """There is no place for another one now."""


class NotYet(QueryRefused):
    """As asked, but too early."""


class NobodyAnswers(NotYet):
    """The replicas that are to answer are starting, or were lost a moment ago."""


class NothingComplete(NotYet):
    """There is no time at which all that the query reads is both complete and still there."""


class Changed(QueryRefused):
    """What the query reads went between its planning and its answer."""

    def __init__(self) -> None:
        super().__init__("what the statement reads was changed or deleted just now: ask again")


class SubscribeEnded(OperatorError):
    """The data are in error, the client is too slow, or no replica goes on with it."""


class SubscribeBehind(SubscribeEnded):
    """More waits for the client than may; it can go on from where it was told everything."""


class SubscribeRevoked(SubscribeEnded):
    """The right to what it reads was taken back, or whoever showed who it is can do so no more."""


class AnswerLost(OperatorError):
    """A large answer that was being read; what has been read of it is of no use."""


class TookTooLong(OperatorError):
    """Nobody is known to wait for it any more, and it keeps replicas from other work."""


class NotTaken(OperatorError):
    """The client reads too slowly, or not at all."""
