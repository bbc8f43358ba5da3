"""Rendering: a dataflow's plan as operators over Spark, prepared once and stepped for ever after.

    DataflowDescription ──lower──> Fragments ──prepare──> plans on the JVM       once           (`build`)
    Step ──describe──> job ──kernels──> batches, deltas ──believed──> outcome    every step     (`dataflow.run`)
    outcome ──> manifests, frontier                                              in one place   (`dataflow.commit`)

Every collection inside a dataflow is one tagged stream: `c0 ... cn-1, __time, __diff, __error`. Error rows have
`__error` set and their columns NULL, and pass through every operator, so results and errors share each plan.

Reading order: `contract` (how it is driven), `scalar` and `mfp` (expressions that cannot fail a job), `pipeline`,
`frames` and `flow` (Python calls and Catalyst between them), `lower*` and `reduce`, `fragments` (a plan cut into jobs),
`prepare`, `stage`, `slots` and `leaves` (in the workers), `description`, `runner`, `spark_runner`, `homes`, `run`,
`dataflow` (a step), `peek`.
"""

from tidemark_replica.render.build import build
from tidemark_replica.render.dataflow import RenderedDataflow
from tidemark_replica.render.errors import (
    NotRendered,
    OutOfMemory,
    RenderError,
    ResultTooLarge,
    StepCancelled,
    StepFailed,
    ViewInError,
)
from tidemark_replica.render.index import IndexTrace
from tidemark_replica.render.stepped_dataflow import SinkDelta, Step, StepOutcome, SteppedDataflow

__all__ = [
    "IndexTrace",
    "NotRendered",
    "OutOfMemory",
    "RenderError",
    "RenderedDataflow",
    "ResultTooLarge",
    "SinkDelta",
    "Step",
    "StepCancelled",
    "StepFailed",
    "StepOutcome",
    "SteppedDataflow",
    "ViewInError",
    "build",
]
