"""The stateful kernels, each a pure function of a step: input batches and a StepContext to output batches.

    arrange(context, arrangement, updates)   index a collection                          (ArrangeBy)
    join(context, spec, updates)             one stage of a linear join                  (Join)
    delta_join(context, spec, streams)       all stages of a delta join                  (Join)
    reduce(context, spec, updates)           counts, sums, averages                      (Reduce: accumulable, distinct)
    extremes(context, spec, updates)         least and greatest values                   (Reduce: min, max)
    reevaluate(context, spec, updates)       anything of whole groups                    (Reduce: basic; Window)
    top_k(context, spec, updates)            the first rows of each group                (TopK)
    threshold(context, spec, updates)        rows of positive multiplicity               (Threshold)
    temporal(context, spec, updates)         rows that come and go with the clock        (Mfp)
    iterate(context, spec, updates, run)     one of these inside a loop                  (LetRec)

They are generators: once one is exhausted, `context.writer.written` names the batches it wrote, which count only when
the driver has committed them.
"""

from tidemark_replica.kernels.worker import freeze_in_spark_worker

freeze_in_spark_worker()
