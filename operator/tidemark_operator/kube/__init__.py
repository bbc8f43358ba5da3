"""The API server: a thin asynchronous client, the cache of what it said, and stored revisions.

client      get, list, create, patch, delete; errors that a caller can act on
cache       the newest known body of every object of ours
revisions   immutable ControllerRevisions that hold plans
leadership  who leads, and the term: which operator, of all that ever were, speaks to the replicas
lease       whether one who stands by may take the Lease
whereabouts whether the process that holds it runs, for those on its machine
events      one Event per thing that a user should notice
"""
