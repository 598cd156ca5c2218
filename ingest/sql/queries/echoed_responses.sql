-- Response ids that model calls of several traces have, of those that were received after a time.
-- parameters: since_ns
-- columns: response_id
-- order: response_id
select response_id
from span_log
where kind in ('llm', 'embedding') and response_id is not null and received_ns >= $since_ns::bigint
group by response_id
having count(distinct trace_id) > 1
order by response_id
