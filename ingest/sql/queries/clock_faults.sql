-- Spans whose times cannot be: they end before they start, have no end, start before 2015, or more than an hour after
-- they arrived.
-- parameters: none
-- columns: service, scope, fault, spans
-- order: spans descending, service, scope, fault
with once as (
  select service, scope, trace_id, span_id, max(start_ns) as start_ns, max(end_ns) as end_ns, min(received_ns) as received_ns
  from span_log
  group by service, scope, trace_id, span_id
),
judged as (
  select
    service, scope,
    case
      when start_ns < 1420070400000000000 then 'starts before 2015'
      when start_ns > received_ns + 3600000000000 then 'starts after it arrived'
      when end_ns = 0 then 'has no end'
      when end_ns < start_ns then 'ends before it starts'
    end as fault
  from once
)
select service, scope, fault, count(*) as spans
from judged
where fault is not null
group by service, scope, fault
order by spans desc, service, scope, fault
