"""The errors of arrangements.

    ArrangementError
    ├── UnsupportedType        a column has a type that no kernel knows
    ├── MalformedUpdates       a batch is not (columns, time, diff, error), or a time is outside its step
    ├── DiffOverflow           a multiplicity does not fit 64 bits
    ├── BatchUnreadable        a batch file is missing, truncated, or has another layout
    ├── OutOfFrontier          a read outside [since, upper)
    ├── StaleManifest          a change to a manifest that is not the newest
    ├── UnknownArrangement     the store holds no such arrangement
    ├── DiskLimitExceeded      the arrangements' share of scratch is used up
    ├── DiskFull               the disk is full
    └── StepAbandoned          the step was cancelled, or its dataflow dropped, while a task still runs

Errors *of the data* (a negative multiplicity, an overflowing sum) are not here: they are rows with `__error` set.
"""


class ArrangementError(Exception):
    """The root of this package's errors."""


class UnsupportedType(ArrangementError):
    """A column has a type that arrangements cannot hash, compare and store."""


class MalformedUpdates(ArrangementError):
    """A batch of updates breaks a kernel's precondition."""


class DiffOverflow(ArrangementError):
    """A multiplicity left the range of signed 64 bits: the right answer cannot be represented."""


class BatchUnreadable(ArrangementError):
    """A batch file is missing, truncated, corrupted or of another layout."""


class OutOfFrontier(ArrangementError):
    """A time is not readable: it is below since, or not complete yet."""


class StaleManifest(ArrangementError):
    """A manifest was replaced by a newer one in between."""


class UnknownArrangement(ArrangementError):
    """The store has no arrangement of that id."""


class DiskLimitExceeded(ArrangementError):
    """The next write would exceed the scratch space that the replica allows its arrangements."""


class DiskFull(ArrangementError):
    """The disk is full: a step cannot write its files."""


class StepAbandoned(ArrangementError):
    """The step has been cancelled or dropped: the task ends."""
