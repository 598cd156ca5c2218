-- The instrumentations that sent spans. `calls` counts model calls, `silent` those of them without a token count,
-- `unread` the spans with attributes that no dialect reads.
-- parameters: none
-- columns: scope, version, dialect, service, spans, calls, silent, unread
-- order: spans descending, scope, version, dialect, service
with once as (
  select
    scope, scope_version, service, trace_id, span_id, any_value(dialect) as dialect, any_value(kind) as kind,
    max(coalesce(input_tokens, output_tokens)) as tokens, bool_or(unknown_keys is not null) as unread
  from span_log
  group by scope, scope_version, service, trace_id, span_id
)
select
  scope, scope_version as version, dialect, service, count(*) as spans,
  count(*) filter (where kind in ('llm', 'embedding')) as calls,
  count(*) filter (where kind in ('llm', 'embedding') and tokens is null) as silent,
  count(*) filter (where unread) as unread
from once
group by scope, scope_version, dialect, service
order by spans desc, scope, version, dialect, service
