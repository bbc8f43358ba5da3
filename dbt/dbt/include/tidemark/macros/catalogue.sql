{# pg_catalog shows a Dataflow as a schema with a relation of the same name. Here all of these are in public. #}
{% macro tidemark__relations_of(schema) -%}
  {%- if schema == target.schema -%}
    n.nspname = c.relname and c.relkind in ('m', 'v')
  {%- else -%}
    n.nspname = {{ adapter.literal(schema) }} and c.relkind in ('r', 'm', 'v')
  {%- endif -%}
{%- endmacro %}

{% macro tidemark__type_of_relation() -%}
  case c.relkind when 'm' then 'materialized_view' when 'v' then 'view' else 'table' end
{%- endmacro %}

{% macro tidemark__list_relations_without_caching(schema_relation) %}
  {% call statement('list_relations_without_caching', fetch_result=True, auto_begin=False) -%}
    select {{ adapter.literal(target.database) }} as database, c.relname as name,
      {{ adapter.literal(schema_relation.schema) }} as schema, {{ tidemark__type_of_relation() }} as type
    from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
    where {{ tidemark__relations_of(schema_relation.schema) }}
  {%- endcall %}
  {{ return(load_result('list_relations_without_caching').table) }}
{% endmacro %}

{% macro tidemark__list_schemas(database) %}
  {{ return(run_query("select nspname from pg_catalog.pg_namespace")) }}
{% endmacro %}

{% macro tidemark__check_schema_exists(information_schema, schema) %}
  {{ return(run_query(
    "select count(*) from pg_catalog.pg_namespace where nspname = " ~ adapter.literal(schema))) }}
{% endmacro %}

{% macro tidemark__get_columns_in_relation(relation) %}
  {% call statement('get_columns_in_relation', fetch_result=True, auto_begin=False) -%}
    select column_name, data_type, character_maximum_length, numeric_precision, numeric_scale
    from information_schema.columns
    where table_schema = {{ adapter.literal(relation.catalogue_schema) }}
      and table_name = {{ adapter.literal(relation.identifier) }}
    order by ordinal_position
  {%- endcall %}
  {{ return(sql_convert_columns_in_relation(load_result('get_columns_in_relation').table)) }}
{% endmacro %}

{% macro tidemark__get_catalog(information_schema, schemas) %}
  {% call statement('catalog', fetch_result=True, auto_begin=False) -%}
    {%- for schema in schemas | unique %}
    select {{ adapter.literal(target.database) }} as table_database, {{ adapter.literal(schema) }} as table_schema,
      c.relname as table_name, {{ tidemark__type_of_relation() }} as table_type, null as table_comment,
      a.attname as column_name, a.attnum as column_index,
      pg_catalog.format_type(a.atttypid, a.atttypmod) as column_type, null as column_comment,
      pg_catalog.pg_get_userbyid(c.relowner) as table_owner
    from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
      join pg_catalog.pg_attribute a on a.attrelid = c.oid
    where a.attnum > 0 and {{ tidemark__relations_of(schema) }}
    {{ 'union all' if not loop.last }}
    {%- endfor %}
    order by table_schema, table_name, column_index
  {%- endcall %}
  {{ return(load_result('catalog').table) }}
{% endmacro %}

{% macro tidemark__information_schema_name(database) -%}information_schema{%- endmacro %}
