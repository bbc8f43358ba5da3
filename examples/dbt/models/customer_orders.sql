{{ config(materialized='ephemeral') }}

select c.c_custkey, c.c_nationkey, c.c_mktsegment, o.o_orderkey, o.o_totalprice
from {{ source('tpch', 'customer') }} c
join {{ source('tpch', 'orders') }} o on o.o_custkey = c.c_custkey
