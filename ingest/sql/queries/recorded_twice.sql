-- recorded_twice
-- Services in which, within some time, a call can be recorded apart: several instrumentations tell of model calls, or one
-- tells of a moment only, the end of a stream.
-- parameters: services, starts, ends
-- columns: service
-- order: service
with wanted as (
  select unnest($services::varchar[]) as service, unnest($starts::bigint[]) as start_ns, unnest($ends::bigint[]) as end_ns
)
select service
from span_log
where kind in ('llm', 'embedding')
  and start_ns between list_min($starts::bigint[]) - 3600000000000 and list_max($ends::bigint[])
  and exists (
    select 1 from wanted where wanted.service = span_log.service
      and span_log.start_ns <= wanted.end_ns and greatest(span_log.start_ns, span_log.end_ns) >= wanted.start_ns
  )
group by service
having count(distinct scope) > 1 or bool_or(start_ns = end_ns and input_digest is not null)
order by service
