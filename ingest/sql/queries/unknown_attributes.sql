-- Attribute keys of spans that no dialect reads, most frequent first: what an instrumentation says beyond what is used.
-- parameters: none
-- columns: key, spans
-- order: spans descending, key
with distinct_spans as (
  select trace_id, span_id, any_value(unknown_keys) as keys from span_log where unknown_keys is not null group by trace_id, span_id
)
select key, count(*) as spans
from (select unnest(from_json(keys, '["varchar"]')) as key from distinct_spans)
group by key
order by spans desc, key
