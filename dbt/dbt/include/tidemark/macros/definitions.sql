{# CREATE OR REPLACE for all: it creates what is not there, edits what is another query, and leaves alone what is as
   it was. It may come again after a run that died, and finds what that one stored. #}
{% macro tidemark__definition(relation, materialized, sql, options) -%}
  create or replace {{ 'view' if materialized == 'view' else 'materialized view' }} {{ relation.render() }}
  {%- if options %} with ({% for name, value in options.items() %}{{ name }} = {{ adapter.literal(value) }}
    {{- ', ' if not loop.last }}{% endfor %}){% endif %} as
  {{ sql }}
{%- endmacro %}

{% macro tidemark__drop_relation(relation) -%}
  {% call statement('drop_relation', auto_begin=False) -%}
    drop {{ 'materialized view' if relation.is_materialized_view else 'view' }} if exists {{ relation.render() }}
  {%- endcall %}
{%- endmacro %}

{# The relation that is in the way of one of another kind is dropped with --full-refresh alone. #}
{% macro tidemark__make_room(existing, target, what) %}
  {% if existing is not none and existing.type != target.type %}
    {% if not should_full_refresh() %}
      {% do exceptions.raise_compiler_error(
        what ~ ": " ~ target.identifier ~ " is a " ~ existing.type ~ " and would become a " ~ target.type
        ~ ", which takes dropping it first: run with --full-refresh, when nothing reads it") %}
    {% endif %}
    {% do adapter.drop_relation(existing) %}
  {% endif %}
{% endmacro %}

{% macro tidemark__create_indexes(relation) -%}
  {% for index in config.get('indexes', default=[]) %}
    {% do run_query(get_create_index_sql(relation, index)) %}
  {% endfor %}
{%- endmacro %}

{# An index is a Dataflow of its own, named by its columns, so that other columns are another index. #}
{% macro tidemark__get_create_index_sql(relation, index) -%}
  {%- for field in index if field != 'columns' -%}
    {% do exceptions.raise_compiler_error(
      "indexes of " ~ relation.identifier ~ ": " ~ field ~ " is no field of an index; columns is the only one") %}
  {%- endfor -%}
  {%- set columns = index.get('columns', []) -%}
  {%- set columns = [columns] if columns is string else columns -%}
  {%- if not columns -%}
    {% do exceptions.raise_compiler_error("indexes of " ~ relation.identifier ~ ": an index has columns") %}
  {%- endif -%}
  {%- set name = adapter.dataflow_name(([relation.identifier] + columns + ['idx']) | join('-')) -%}
  {%- set quoted = [] -%}
  {%- for column in columns %}{% do quoted.append(adapter.quote(column)) %}{% endfor -%}
  create index if not exists {{ adapter.quote(name) }} on {{ relation.render() }} ({{ quoted | join(', ') }})
  {%- set instance = config.get('instance') -%}
  {%- if instance %} with (instance = {{ adapter.literal(instance) }}){% endif -%}
{%- endmacro %}

{% macro tidemark__apply_grants(relation, grant_config, should_revoke=True) %}
  {% if grant_config %}
    {% do exceptions.raise_compiler_error(
      "grants of " ~ relation.identifier ~ ": rights are those of Kubernetes; give get on dataflows/data by a Role") %}
  {% endif %}
{% endmacro %}

{% macro tidemark__persist_docs(relation, model, for_relation, for_columns) -%}
  {% if config.persist_relation_docs() or config.persist_column_docs() %}
    {% do exceptions.raise_compiler_error(
      "persist_docs of " ~ relation.identifier ~ ": views have no comments; dbt docs shows descriptions") %}
  {% endif %}
{%- endmacro %}
