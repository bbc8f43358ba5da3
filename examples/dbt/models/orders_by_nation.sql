{{ config(indexes=[{'columns': ['n_name']}]) }}

select n.n_nationkey, n.n_name, count(*) as orders, sum(o.o_totalprice) as price
from {{ ref('customer_orders') }} o
join {{ source('tpch', 'nation') }} n on n.n_nationkey = o.c_nationkey
group by n.n_nationkey, n.n_name
