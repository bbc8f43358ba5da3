"""What a namespace's names mean, and who reads what.

registry    the operator's memory of every DataSource and Dataflow: pinned tables, active revisions
relations   registry -> planning.Catalogue
"""
