"""dbt models as views that Tidemark keeps up to date.

credentials    the profile: the address of tidemark-pgwire, and the user and token of the connection
connections    statements over the PostgreSQL protocol, without transactions
column         types as SQL casts to them
relation       the name of a model as a Dataflow, and how SQL names it
impl           the adapter: relations, columns, catalogue; its macros are in dbt/include/tidemark
"""

from dbt.adapters.base import AdapterPlugin
from dbt.adapters.tidemark.credentials import TidemarkCredentials
from dbt.adapters.tidemark.impl import TidemarkAdapter
from dbt.include import tidemark

Plugin = AdapterPlugin(adapter=TidemarkAdapter, credentials=TidemarkCredentials, include_path=tidemark.PACKAGE_PATH)
