"""The errors of rendering and stepping a plan.

    RenderError
    ├── NotRendered        the plan needs an operator that this replica does not have; nothing was built
    ├── StepFailed         a step did not complete, or was not committed: the state is unchanged, and it can run again
    │   ├── EndlessRecursion  a recursion exceeded the iterations that any recursion may have
    │   └── OutOfMemory       a process that ran the step vanished, as a process does that takes too much memory
    ├── StepCancelled      a step was cancelled, by `cancel` or `drop`; the state is unchanged
    ├── CollectionInError  a peek found errors in the collection; the message is that of the error
    └── ResultTooLarge     the rows of a peek take more space than its caller allows

Errors *of the data* are not here: they are rows with `__error` set.
"""

from __future__ import annotations

from tidemark_replica.errors import DataflowRefused, ReplicaError


class RenderError(ReplicaError):
    """The root of rendering's errors."""


class NotRendered(RenderError, DataflowRefused):
    """The plan needs an operator that this replica does not have. The message names the node."""


class StepFailed(RenderError):
    """The step did not complete. Nothing was committed; it can run again."""


class EndlessRecursion(StepFailed):
    """A recursion does not end. It needs a limit in its text, or other data."""


class OutOfMemory(StepFailed):
    """A process of Spark that ran the step was killed: it, or a process beside it, needs more memory."""


class StepCancelled(RenderError):
    """The step was cancelled. Nothing was committed."""


class CollectionInError(RenderError):
    """The collection holds errors at the requested time."""


class ResultTooLarge(RenderError):
    """A result is larger than its caller allows."""
