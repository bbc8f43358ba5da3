"""Orchestrators: they see to it that the processes which should run do run, and that no other of ours does.

interface   what the operator asks of any orchestrator
process     local subprocesses that outlive the operator: development, tests, a first try
    child       one supervised process          launch      what a child runs first: a lock, a record, then exec
    record      what is on disk about it        liveness    pid + start time, and the session's members
"""
