"""Instances at run time: the pure controller, its replicas' connections, and who waits for what.

fleet          every instance of every namespace; the clock that maintains them
running        one instance: hosts the connections, turns notices into wake-ups
replica_state  what it knows of a replica           listener      whom it tells, and asks
answers        who waits for a peek                 clients       who waits for a subscribe or a copy
subscription   what one has still to be sent        stashes       large answers, a piece at a time
questions      what any replica answers           deaths        what clients ask, and replicas die of
resting        what they wait for in vain           too_old       what no replica that answers can be told of
said, counts   what statuses mean; what went to and fro
"""
