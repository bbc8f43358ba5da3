"""The kernels: generators from the input updates of a step to its output updates, over a StepContext.

`in` and `out` are the input and output collections, `k` is a group's key, `Δ` the updates of the step.

    kernel              equation                               state                         cost of an update
    arrange             out = in                               in, by key                    Δ
    join                out = left join right                  both inputs, by key           Δ and its matches
    delta_join          out = in0 join in1 join ...            inputs, by lookup key         Δ and its matches per path
    half_join           out = stream join earlier updates      the looked up input, by key   Δ and its matches
    reduce              out(k) = sums over in(k)               one row of sums per group     Δ and a lookup per group
    partial_sums        out(k) = sums over a chunk of in(k)    none                          Δ
    threshold           out(row) = max(0, in(row))             one count per row             Δ and a lookup per row
    extremes            out(k) = min and max of in(k)          keys and values, by value     two rows per batch, group
    top_k               out(k) = in(k)[offset:offset+limit]    in, by value                  those rows per batch, group
    reevaluate_groups   out(k) = f(in(k))                      in, by key                    the group, per touched time
    flat_map            out = (row, value), value in f(row)    none                          the output
    temporal            out[t] = in where lower <= t < upper   updates that are yet to come  Δ and what falls due
    changes             out[t] = rows that changed at t        none                          Δ
    continual_task      out[t] = view[t] where watched changes the view                      the view, per change
    iterate             a kernel, with iterations for times    in, by key                    the group, per round
    recursion_limit     out = in + errors past the limit       rows of the last iteration    Δ and a lookup per row

A kernel's spec is a frozen value that names the kernel's arrangements and columns; specs travel to tasks inside
pipelines. Error rows of the input pass through every kernel. Once a generator is exhausted, `context.writer.written`
holds the batches that it wrote. They count when the driver has committed them.

`kernel_input` checks the input of every kernel and cuts it into chunks. `groups/` evaluates basic aggregates and the
window functions of `window/`. `worker` prepares Spark's Python workers.
"""

from tidemark_replica.kernels.worker import freeze_imports_in_spark_worker

freeze_imports_in_spark_worker()
