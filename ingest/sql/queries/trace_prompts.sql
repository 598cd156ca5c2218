-- The beginning of the first prompt of some traces: so many characters of its messages as JSON, and how many they are.
-- A prompt that was recorded in another trace is left out.
-- parameters: trace_ids, characters
-- columns: trace_id, text, characters
-- order: trace_id
with firsts as (
  select
    trace_id, arg_min(content_span_id, start_ns) as content_span_id
  from settled_calls
  where list_contains($trace_ids::varchar[], trace_id) and content_span_id is not null and content_trace_id is null
    and kind in ('llm', 'embedding', 'agent', 'chain')
  group by trace_id
)
select
  f.trace_id, left(arg_max(c.input_text, c.batch), coalesce($characters::bigint, 2000)) as text,
  length(arg_max(c.input_text, c.batch)) as characters
from content_log c join firsts f on c.trace_id = f.trace_id and c.span_id = f.content_span_id
where list_contains($trace_ids::varchar[], c.trace_id) and c.input_text is not null
group by f.trace_id
order by f.trace_id
