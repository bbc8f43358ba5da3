"""Instances at run time: the pure controller, its replicas' connections, and who waits for what.

fleet       every instance of every namespace; the clock that maintains them
running     one instance: hosts the connections, turns notices into wake-ups
"""
