{# A model is a Dataflow, whose name has dashes and lower-case letters. #}
{% macro tidemark__generate_alias_name(custom_alias_name=none, node=none) -%}
  {%- set name = default__generate_alias_name(custom_alias_name, node) | trim -%}
  {# an ephemeral model is a name in SQL alone #}
  {%- do return(adapter.dataflow_name(name)) -%}
{%- endmacro %}

{# There is one schema. dbt puts stored failures of tests into one of their own unless told otherwise. #}
{% macro tidemark__generate_schema_name(custom_schema_name, node) -%}
  {%- if custom_schema_name is not none and node is not none and node.resource_type in ('model', 'seed')
      and custom_schema_name != target.schema -%}
    {% do exceptions.raise_compiler_error(
      node.resource_type ~ " " ~ node.name ~ " has the schema " ~ custom_schema_name ~ ": a namespace has one schema. "
      ~ "Leave schema out; an alias such as " ~ custom_schema_name ~ "_" ~ node.name ~ " keeps names apart") %}
  {%- endif -%}
  {% do return(target.schema) %}
{%- endmacro %}

{% macro tidemark__generate_database_name(custom_database_name=none, node=none) -%}
  {%- if custom_database_name is not none and custom_database_name != target.database and node is not none
      and node.resource_type != 'source' -%}
    {% do exceptions.raise_compiler_error(
      node.name ~ " has the database " ~ custom_database_name ~ ": a connection has one namespace, "
      ~ target.database) %}
  {%- endif -%}
  {% do return(target.database) %}
{%- endmacro %}
