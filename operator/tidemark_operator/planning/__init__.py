"""The way from a Dataflow's SQL to a stored revision.

client         the planner's process as a function, with a deadline
planner_fault  answers that are the planner's fault, and not the SQL's
assemble       a plan, shards and an as_of become a dataflow description with ids of its own
shards         locations of shards, and which version an export writes
table_edit     what an edit of a DataSource's tables changes
adoption       tables that an earlier object left
revision       what is stored
"""
