"""The operator's errors.

OperatorError
├── Waiting              the object must wait for something else; the operator reconciles it again afterwards
├── Rejected             the user's request is impossible as written; an edit helps, a retry does not
├── LeadershipLost       another operator holds the Lease with a higher term; this process ends
├── PlannerUnavailable   the planner's process does not answer
├── PlannerBusy          a long planning request holds the planner; the object is reconciled again after it
├── RevisionUnreadable   this version cannot read a stored plan
├── CertificateRefused   a stored certificate is invalid, and the operator does not own it
├── SubscribeEnded       a subscribe ended before its end time
│   ├── SubscribeBehind  because the client reads too slowly
│   ├── SubscribeVoid    because another program changed what it reads
│   └── SubscribeRevoked because the client lost the right to read
├── AnswerIsError        the rows that were to be read are in error
├── AnswerLost           an answer was lost with the replica that held it
├── AnswerNotRead        a client did not read its answer while other queries waited
├── AnswerTimedOut       an answer exceeded the limit on computing time
├── WriteUnknown         rows were sent to a replica, which was lost before it answered
└── QueryRefused         a query cannot be answered as written
    ├── StatementRefused the planner refuses its SQL
    ├── TimeNotReadable  at the requested time; other times are readable
    ├── WriteRefused     the rows cannot be written as they are
    ├── DefinitionRefused an object cannot be created, edited or deleted as asked
    ├── TooMany          the limit on running or waiting queries is reached
    ├── QueryNotReady    the query may succeed soon; the gateway retries it for a while
    │   ├── WriteStopped     a table takes no rows until somebody changes something
    │   ├── NoCompleteTime   no time exists yet at which the query is answerable
    │   └── NoReplicaAnswers replicas exist, but none of them answers
    └── RelationChanged  a relation that the query reads has changed or is gone
"""

from __future__ import annotations


class OperatorError(Exception):
    """Root of the operator's errors."""


class Waiting(OperatorError):
    """The object waits. `reason` (CamelCase) and the message become a condition; no fault is reported. `brief`: the
    message without fields of the ComputeInstance, for callers who may not get the ComputeInstance."""

    def __init__(self, reason: str, message: str, brief: str = "") -> None:
        super().__init__(message)
        self.reason, self.brief = reason, brief or message


class Rejected(OperatorError):
    """The user must edit the object. `reason` (CamelCase) and the message become a condition."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class LeadershipLost(OperatorError):
    """Another operator commands the replicas."""


class PlannerUnavailable(OperatorError):
    """The planner is starting, or it was killed."""


class PlannerBusy(OperatorError):
    """The object is planned when its turn comes."""


class RevisionUnreadable(OperatorError):
    """A ControllerRevision holds no plan that this version understands."""


class CertificateRefused(OperatorError):
    """A Secret or file holds an invalid certificate, and the operator may not replace it."""


class QueryRefused(OperatorError):
    """The query names an unknown relation or an unreadable time."""


class StatementRefused(QueryRefused):
    """The planner refuses the SQL. `code`, `line`, `column`: those of its first diagnostic."""

    def __init__(self, message: str, code: str, line: int = 0, column: int = 0) -> None:
        super().__init__(message)
        self.code, self.line, self.column = code, line, column


class TimeNotReadable(QueryRefused):
    """The requested time is invalid, compacted away, or in the future. The message gives the readable times."""


class DefinitionRefused(QueryRefused):
    """An object is not created, edited or deleted. `sqlstate`: PostgreSQL's code of the reason."""

    def __init__(self, sqlstate: str, message: str) -> None:
        super().__init__(message)
        self.sqlstate = sqlstate


class TooMany(QueryRefused):
    """The gateway has no free slot for another query."""


class QueryNotReady(QueryRefused):
    """The query is valid, but nothing can answer it yet."""


class WriteStopped(QueryNotReady):
    """The DataSource cannot begin, or is suspended. Programs that keep their rows may repeat the call later."""


class NoReplicaAnswers(QueryNotReady):
    """The replicas that should answer are starting, or their connections were lost a moment ago."""


class NoCompleteTime(QueryNotReady):
    """No time is both complete and still readable in every relation of the query."""


class RelationChanged(QueryRefused):
    """A relation of the query changed between planning and answer."""

    def __init__(self) -> None:
        super().__init__("a relation that the statement reads was just changed or deleted: run the statement again")


class SubscribeEnded(OperatorError):
    """The data hold an error, the client reads too slowly, or no replica can continue the subscribe."""


class SubscribeBehind(SubscribeEnded):
    """The client's backlog exceeds the limit. The client can resume after the last complete time it received."""


class SubscribeNotWhole(SubscribeEnded):
    """The next batch has a part of the updates of a time, and the client does not know parts."""


class SubscribeVoid(SubscribeEnded):
    """Another program changed what is read: no change that follows is one of the rows that the client has."""


class SubscribeRevoked(SubscribeEnded):
    """The client lost the right to read a relation, or its credentials expired."""


class AnswerIsError(OperatorError):
    """The replica has an error instead of rows: the data have one, or the answer is larger than answers may be."""


class AnswerLost(OperatorError):
    """The replica that held a large answer is gone. The part that the client has read is unusable."""


class WriteUnknown(OperatorError):
    """The rows are written once or not at all; the same call with the same key tells."""


class WriteRefused(QueryRefused):
    """The replica refuses rows: `CODE: text`. Nothing is written."""


class AnswerTimedOut(OperatorError):
    """The query ran past the limit. It is ended, because it keeps the replicas from other work."""


class AnswerNotRead(OperatorError):
    """The client reads its answer too slowly, or not at all."""
