"""What can go wrong in an arrangement.

    ArrangementError
    ├── UnsupportedType        a column has a type that no kernel knows
    ├── MalformedUpdates       a batch is not (columns, time, diff, error), or a time lies outside its step
    ├── DiffOverflow           a multiplicity no longer fits 64 bits
    ├── BatchUnreadable        a batch file is missing, cut short or not ours
    ├── OutOfFrontier          a read outside [since, upper)
    ├── StaleManifest          a change to a manifest that has moved on
    ├── UnknownArrangement     the store holds no such arrangement
    ├── DiskLimitExceeded      the scratch space allowed to arrangements is used up
    ├── DiskFull               the disk has no room left
    └── StepAbandoned               the step was cancelled, or its dataflow dropped, while a task still works on it

Errors *of the data* (a negative multiplicity, an overflowing sum) are not here: they are rows with `__error` set.
"""


class ArrangementError(Exception):
    """The root of this package's failures."""


class UnsupportedType(ArrangementError):
    """A column has a type that arrangements cannot hash, compare and store."""


class MalformedUpdates(ArrangementError):
    """A batch of updates breaks a kernel's precondition."""


class DiffOverflow(ArrangementError):
    """A multiplicity left the range of signed 64 bits: no right answer can be represented."""


class BatchUnreadable(ArrangementError):
    """A batch file is missing, truncated, corrupted or of another layout."""


class OutOfFrontier(ArrangementError):
    """A time is not readable: below since, or not complete yet."""


class StaleManifest(ArrangementError):
    """A manifest was changed by somebody else in between."""


class UnknownArrangement(ArrangementError):
    """The store has no arrangement of that id."""


class DiskLimitExceeded(ArrangementError):
    """Writing on would take more scratch space than the replica allows its arrangements."""


class DiskFull(ArrangementError):
    """There is no room left on the disk for what a step writes."""


class StepAbandoned(ArrangementError):
    """Nobody waits for the step any more: the task ends."""
