-- The stored log events of some traces, as the settler needs them.
-- parameters: trace_ids
-- columns: trace_id, span_id, name, time_ns, body, attributes
-- order: trace_id, time_ns, event_id
select trace_id, span_id, name, time_ns, body, attributes
from (select *, row_number() over (partition by event_id order by batch) as place from event_log
      where trace_id in (select unnest($trace_ids::varchar[])))
where place = 1 and span_id is not null
order by trace_id, time_ns, event_id
