-- The traces of one session, in the order of their starts.
-- parameters: session_id, service, most
-- columns: trace_id, name, start_ns, end_ns, calls, errors, cost_usd
-- order: start_ns, trace_id
select trace_id, name, start_ns, end_ns, calls, errors, cost_usd
from traces
where session_id = $session_id::varchar and ($service::varchar is null or service = $service::varchar)
order by start_ns, trace_id
limit coalesce($most::bigint, 100)
