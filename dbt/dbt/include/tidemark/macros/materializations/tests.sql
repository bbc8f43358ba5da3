{# A test is a query that must stay empty. With store_failures it is a view of its failures, which is kept up to date
   between runs: table is a materialized view, view an index in memory. #}
{% materialization test, adapter='tidemark' %}
  {% set relations = [] %}
  {% set failures %}
    {{ get_limit_subquery_sql(sql, config.get('limit')) }}
  {% endset %}
  {% if should_store_failures() %}
    {% set stored_as = config.get('store_failures_as') or 'table' %}
    {% if stored_as not in ('table', 'materialized_view', 'view') %}
      {% do exceptions.raise_compiler_error(
        "test " ~ model.name ~ ": store_failures_as is ephemeral, table, materialized_view or view, not "
        ~ stored_as) %}
    {% endif %}
    {% set kind = 'view' if stored_as == 'view' else 'materialized_view' %}
    {% set target = api.Relation.create(database=database, schema=schema, identifier=model['alias'], type=kind) %}
    {% set existing = adapter.get_relation(database=database, schema=schema, identifier=model['alias']) %}
    {% if existing is not none and existing.type != kind %}
      {% do adapter.drop_relation(existing) %}
    {% endif %}
    {% call statement('failures', auto_begin=False) -%}
      {{ tidemark__definition(target, kind, failures, adapter.view_options(config, kind)) }}
    {%- endcall %}
    {% do relations.append(target) %}
    {% set failures = "select * from " ~ target.render() %}
  {% endif %}
  {% call statement('main', fetch_result=True, auto_begin=False) -%}
    {{ get_test_sql(failures, config.get('fail_calc'), config.get('warn_if'), config.get('error_if'), limit=none) }}
  {%- endcall %}
  {{ return({'relations': relations}) }}
{% endmaterialization %}

{# Nothing is created for a unit test: its inputs are rows in the query itself. #}
{% materialization unit, adapter='tidemark' %}
  {% set expected_rows = config.get('expected_rows') %}
  {% set types, quoted = {}, {} %}
  {% for column in get_column_schema_from_query(sql) %}
    {% do types.update({column.name | lower: column.data_type}) %}
    {% do quoted.update({column.name | lower: column.quoted}) %}
  {% endfor %}
  {% set names = [] %}
  {% for name in (expected_rows[0].keys() if expected_rows else types.keys()) %}
    {% do names.append(quoted[name | lower]) %}
  {% endfor %}
  {% set expected = config.get('expected_sql') or get_expected_sql(expected_rows, types, quoted) %}
  {% call statement('main', fetch_result=True, auto_begin=False) -%}
    {{ get_unit_test_sql(sql, expected, names) }}
  {%- endcall %}
  {{ return({'relations': []}) }}
{% endmaterialization %}
