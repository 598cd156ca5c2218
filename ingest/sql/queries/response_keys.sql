-- Keys, as `known_ids` has them, of the response ids of model calls that were received after a time.
-- parameters: since_ns
-- columns: key
-- order: key
select distinct md5_number_upper(response_id) as key
from span_log
where kind in ('llm', 'embedding') and response_id is not null and received_ns >= $since_ns::bigint
order by key
