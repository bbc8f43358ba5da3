{{ config(materialized='view', key=['team']) }}

select s.team, count(*) as orders
from {{ ref('customer_orders') }} o
join {{ ref('segments') }} s on s.segment = o.c_mktsegment
group by s.team
