"""The objects of a namespace: what each name means, and which object reads which.

dataflow_state       what the operator remembers of one Dataflow
registry             ... and of every DataSource and Dataflow
relations            the relations that SQL may name, as the planner's catalogue
row_counts           how many rows tables have, as plans are chosen by it
reader_index         which Dataflows read an object
replacement_closure  which Dataflows an edit replaces together
table_locations      which object owns the table at a location
"""
