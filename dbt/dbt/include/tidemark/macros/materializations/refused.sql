{% materialization incremental, adapter='tidemark' %}
  {% do exceptions.raise_compiler_error(
    "model " ~ model.name ~ " is materialized as incremental: a materialized view is always incremental here. "
    ~ "Write materialized='materialized_view', and leave is_incremental() and unique_key out") %}
{% endmaterialization %}

{% materialization snapshot, adapter='tidemark' %}
  {% do exceptions.raise_compiler_error(
    "snapshot " ~ model.name ~ ": Tidemark keeps no history of rows. "
    ~ "SUBSCRIBE, a Kafka sink or changeDataFeed of a published table has each change with its time") %}
{% endmaterialization %}

{% materialization clone, adapter='tidemark' %}
  {% do exceptions.raise_compiler_error(
    "clone of " ~ model.name ~ ": views are not cloned; dbt run creates it in the other namespace") %}
{% endmaterialization %}
