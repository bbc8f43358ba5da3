"""From a Dataflow's SQL to a stored revision.

client      asks the planner's process, with a deadline that kills it
revision    what is stored: the description, what the exports are, what it reads
assemble    a plan, shards and an as_of put together; identity
shards      addresses of shards, and which version an export writes
adoption    tables that an earlier object has left      blame    what the planner failed at, rather than refused
"""
