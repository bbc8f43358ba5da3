"""What a namespace's names mean, and who reads what.

registry    the operator's memory of every DataSource and Dataflow: pinned tables, active revisions
relations   registry -> planning.Catalogue
readers     who reads what, kept from one question to the next
closure     what must be replaced together
claims      which tables belong to objects that are there
"""
