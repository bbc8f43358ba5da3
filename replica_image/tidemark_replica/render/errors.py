"""What can go wrong when a plan is rendered and stepped.

    RenderError
    ├── NotRendered     the plan holds something that this replica has no operator for; nothing was built
    ├── StepFailed      a step did not complete, or was not committed; the state is what it was, and the step can be
    │   │               run again
    │   ├── EndlessRecursion  a recursion went on past every iteration that one may have
    │   └── OutOfMemory       a process that worked at it vanished, as those do that take too much memory
    ├── StepCancelled   a step was cancelled, by `cancel` or `drop`; the state is what it was
    ├── ViewInError     a peek found errors in the collection; the message is the error's own
    └── ResultTooLarge  a peek's rows take more than its caller allows

Errors *of the data* are not here: they are rows with `__error` set.
"""

from __future__ import annotations

from tidemark_replica.errors import DataflowRefused, ReplicaError


class RenderError(ReplicaError):
    """Root of rendering's errors."""


class NotRendered(RenderError, DataflowRefused):
    """The plan needs an operator that is not built; the message names the node."""


class StepFailed(RenderError):
    """The step did not complete. Nothing was committed; it can be run again."""


class EndlessRecursion(StepFailed):
    """A recursion does not come to an end: without a limit in its text, or other data, it never will."""


class OutOfMemory(StepFailed):
    """A process of Spark's that worked at the step was killed: it, or what ran beside it, needs more memory."""


class StepCancelled(RenderError):
    """The step was cancelled. Nothing was committed."""


class ViewInError(RenderError):
    """The collection holds errors at the time asked for."""


class ResultTooLarge(RenderError):
    """A result is larger than its caller allows."""
