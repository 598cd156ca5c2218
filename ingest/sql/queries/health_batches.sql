-- What arrived, by the minute of its receipt. `rejected` counts the spans and records that could not be used.
-- parameters: none
-- columns: received_ns, requests, spans, rejected
-- order: received_ns
select
  received_ns, sum(requests)::bigint as requests, sum(spans)::bigint as spans, sum(rejected)::bigint as rejected
from ingest_log
where requests > 0
group by received_ns
order by received_ns
