{% macro tidemark__current_timestamp() -%}now(){%- endmacro %}
