{# A seed is a materialized view of constants: an edit replaces its rows in one moment. Spark's dialect casts texts to
   all types. #}
{% materialization seed, adapter='tidemark' %}
  {% set target = this.incorporate(type='materialized_view') %}
  {% set rows = load_agate_table() %}
  {% do store_result('agate_table', response='OK', agate_table=rows) %}

  {{ run_hooks(pre_hooks, inside_transaction=False) }}
  {{ run_hooks(pre_hooks, inside_transaction=True) }}

  {% do apply_grants(target, config.get('grants'), should_revoke=False) %}
  {% do persist_docs(target, model) %}
  {% do tidemark__make_room(load_cached_relation(this), target, "seed " ~ model.name) %}
  {% set sql = tidemark__seed_sql(target, rows) %}
  {% if sql | length > 130000 %}
    {% do exceptions.raise_compiler_error(
      "seed " ~ model.name ~ " makes a statement of " ~ sql | length ~ " characters, more than 130,000: write its rows "
      ~ "into a table by kubectl tidemark insert, or put the file into a DataSource") %}
  {% endif %}
  {% do run_query("set dialect = 'spark'") %}
  {% call noop_statement('main', 'CREATE ' ~ rows.rows | length, 'CREATE', rows.rows | length) %}{{ sql }}{% endcall %}
  {% do run_query(sql) %}
  {% do run_query("reset dialect") %}
  {% do create_indexes(target) %}

  {{ run_hooks(post_hooks, inside_transaction=True) }}
  {{ run_hooks(post_hooks, inside_transaction=False) }}
  {{ return({'relations': [target]}) }}
{% endmaterialization %}

{% macro tidemark__seed_sql(relation, table) -%}
  {%- set overrides = model['config'].get('column_types', {}) -%}
  {%- set names = table.column_names -%}
  create or replace materialized view `{{ relation.identifier }}` as select
  {%- for name in names %} cast(c{{ loop.index0 }} as {{ adapter.spark_type(
    overrides.get(name, adapter.convert_type(table, loop.index0))) }}) as `{{ name }}`{{ ',' if not loop.last }}
  {%- endfor %} from values
  {%- set cells = table.rows if table.rows | length else [[none] * (names | length)] %}
  {#- the NULLs of the first row have a type: a column may have no other cells -#}
  {%- for row in cells %}{% set first = loop.first %} ({% for cell in row -%}
    {{ 'cast(null as string)' if first and cell is none else adapter.spark_literal(cell) }}{{ ',' if not loop.last }}
  {%- endfor %})
    {{- ',' if not loop.last }}
  {%- endfor %} as t({% for name in names %}c{{ loop.index0 }}{{ ',' if not loop.last }}{% endfor %})
  {%- if not table.rows | length %} where false{% endif %}
{%- endmacro %}
