{% materialization materialized_view, adapter='tidemark' %}
  {{ return(tidemark__materialize('materialized_view')) }}
{% endmaterialization %}

{# dbt's word for stored rows: here they are kept up to date, too #}
{% materialization table, adapter='tidemark' %}
  {{ return(tidemark__materialize('materialized_view')) }}
{% endmaterialization %}

{# an index in the memory of the instance's replicas #}
{% materialization view, adapter='tidemark' %}
  {{ return(tidemark__materialize('view')) }}
{% endmaterialization %}

{% macro tidemark__materialize(kind) %}
  {% set target = this.incorporate(type=kind) %}
  {% set options = adapter.view_options(config, kind) %}

  {{ run_hooks(pre_hooks, inside_transaction=False) }}
  {{ run_hooks(pre_hooks, inside_transaction=True) }}

  {% if config.get('contract').enforced %}
    {% do get_assert_columns_equivalent(sql) %}
  {% endif %}
  {% do apply_grants(target, config.get('grants'), should_revoke=False) %}
  {% do persist_docs(target, model) %}
  {% do tidemark__make_room(load_cached_relation(this), target, model.resource_type ~ " " ~ model.name) %}
  {% call statement('main', auto_begin=False) -%}
    {{ tidemark__definition(target, kind, sql, options) }}
  {%- endcall %}
  {% do create_indexes(target) %}

  {{ run_hooks(post_hooks, inside_transaction=True) }}
  {{ run_hooks(post_hooks, inside_transaction=False) }}
  {{ return({'relations': [target]}) }}
{% endmacro %}
