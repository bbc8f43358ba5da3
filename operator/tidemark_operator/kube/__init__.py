"""The API server: an asynchronous client, a cache of our objects, leadership, and stored plans.

module                 what it has
client                 get, list, create, patch, delete; errors by what a caller can do
objects                objects of other kinds, applied server-side (StatefulSets, Services, ...)
cache                  the newest known body of every object of our kinds
revisions              immutable ControllerRevisions that hold plans
leadership, lease      the Lease: which operator leads, its term, and when a standby may take over
lease_holder_process   whether the Lease's holder still runs, for operators on the same machine
events                 one Event per thing that a user should notice
reviews                TokenReview and SubjectAccessReview
merge_patch            a JSON merge patch from old to new
startup_retry          retries of transient failures while the operator starts
"""
