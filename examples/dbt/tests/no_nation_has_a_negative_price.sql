{{ config(store_failures=true) }}

select n_name, price from {{ ref('orders_by_nation') }} where price < 0
