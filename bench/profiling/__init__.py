"""Where a step's time goes.

plans      the queries that figures name, over TPC-H's tables     shapes  where steps run, and how large they are
driving    steps of one of them, timed from outside               spans   a Python call's time by what it is spent on
parts      both put together                                      worker  a step worker that tells of its calls
stacks     what the processes were doing, sampled
"""
