"""Introspection: what the operator knows at this moment, as SQL relations and as a reply to clients.

frontiers      the frontiers of every table and export, for `kubectl tidemark frontiers`
files          the files of a DataSource, for `kubectl tidemark files`
top            what dataflows keep and take, for `kubectl tidemark top`
relations      the relations of `tidemark_introspection`: columns and rows
documents      the rows of relations for a DataSource that keeps them as tables; shared_documents bounds their cost
feed           sends these to the replica that ingests
inline_rows    rows of these relations, put into a planned query
selection      which queries of one relation the operator answers itself; selected_rows computes them
"""
