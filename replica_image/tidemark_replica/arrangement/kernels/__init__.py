"""The stateful kernels, each a pure function of a step: input batches and a StepContext to output batches.

    arrange(context, arrangement, updates)   index a collection             (ArrangeBy)
    join(context, spec, updates)             one stage of a linear join     (Join)
    reduce(context, spec, updates)           counts, sums, averages         (Reduce: accumulable, distinct)
    reevaluate(context, spec, updates)       anything of whole groups       (Reduce: basic; Window)
    threshold(context, spec, updates)        rows of positive multiplicity  (Threshold)

They are generators: once one is exhausted, `context.writer.written` names the batches it wrote, which count only when
the driver has committed them.
"""

from tidemark_replica.arrangement.kernels.worker import freeze_in_spark_worker

freeze_in_spark_worker()
