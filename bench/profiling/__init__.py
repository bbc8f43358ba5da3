"""Where a step's time goes.

plans      the queries that figures name, over TPC-H's tables     spans   a task's time by what it is spent on
driving    steps of one of them, timed from outside               stacks  what the processes were doing, sampled
"""
