"""Rendering: a dataflow's plan becomes Spark plans and kernels once, and every step runs them again.

The forms of a plan, each made from the one before:

    Plan              LIR, as the planner sent it: a tree of Join, Reduce, TopK ...          `lowering.py`
      │ lower_*       one function per operator
    Stream            the output of a plan while it is lowered: a pipeline and its columns   `plan/lowering_stream.py`
      │
      ├─ Pipeline     a tree of kernels and readers that one Python call runs                `plan/pipeline.py`
      └─ Frame        such calls, and what Catalyst computes between them                    `plan/jvm_frames.py`
      │ cut where a result is read twice
    Fragment          the frames that are computed together: one Spark job                   `plan/fragments.py`
      │ prepare       once
    PreparedFragment  a fragment and its physical plan on the JVM                            `execution/runner.py`
      │ every step
    FragmentRun       a prepared fragment and the description of one step                    `execution/runner.py`
      │
    FragmentShape     the fragment in one task, or in several with exchanges between         `execution/step_shape.py`
      │ tasks of Spark, or a step worker
    Stage             one attempt of one Python call: it evaluates a Pipeline                `task/stage.py`
      │
    StageReport       the batches and files that the attempt wrote                           `task/description.py`

`RenderedDataflow` (`dataflow.py`) plans, runs and commits steps:

    Step ──> FragmentRuns ──> StageReports ──> StepOutcome ──commit──> manifests, frontier, deltas for the sinks

Only the commit changes state, so a step may fail, be cancelled, or run twice at any point.

Every collection inside a dataflow is one tagged stream with the columns `c0 ... cn-1, __time, __diff, __error`. An
error row has `__error` set and its other columns NULL. Error rows pass through every operator, so results and errors
share each plan.

Reading order:

1. `stepped_dataflow` and `dataflow`: how the command loop drives a dataflow.
2. `lowering`, then an operator: `top_k`, `threshold`, `temporal`, `flat_map`, `window`, `join/`, `reduce/`,
   `recursion/`, `continual_task`.
3. `plan/`: `lowering_stream`, `pipeline`, `jvm_frames`, `fragments`, `exchanged_plan`.
4. `expressions/`: `failable_sql` and `mfp`, expressions that cannot fail a job.
5. `dataflow`, then `execution/`: `step_run`, `runner`, `step_shape`, `spark_runner`, `worker_runner`.
6. `task/`: `description`, `stage`, `stage_inputs`, `exchange_io`, `loop/`. `step_worker/` runs stages without Spark.
7. `index`: exported indexes. `telemetry/`: costs and progress of operators.
"""
