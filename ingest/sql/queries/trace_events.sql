-- The stored log events of some traces, as the settler needs them. `since_ns` spares the
-- files received before; NULL reads all.
-- parameters: trace_ids, since_ns
-- columns: event_id, trace_id, span_id, name, time_ns, service, body, attributes
-- order: trace_id, time_ns, batch, line
select event_id, trace_id, span_id, name, time_ns, service, body, attributes
from (select *, row_number() over (partition by event_id order by batch) as place from event_log
      where trace_id in (select unnest($trace_ids::varchar[]))
      and ($since_ns::bigint is null or received_ns >= $since_ns::bigint))
where place = 1
order by trace_id, time_ns, batch, line
