-- Traces of which any span or its resource carries an attribute with one of the wanted values.
-- parameters: attribute, wanted
-- columns: trace_id
-- order: trace_id
select distinct trace_id
from span_log
where list_contains(
    $wanted::varchar[],
    coalesce(
      json_extract_string(attributes, '$."' || $attribute::varchar || '"'),
      json_extract_string(resource, '$."' || $attribute::varchar || '"')
    )
  )
order by trace_id
