-- How many traces started, and what they came to.
-- parameters: service, since_ns, until_ns
-- columns: tasks, priced_tasks, cost_usd, spans, failed
-- order: one row
select
  count(*) as tasks, count(cost_usd) as priced_tasks, sum(cost_usd) as cost_usd, coalesce(sum(spans), 0)::bigint as spans,
  count(*) filter (where errors > 0) as failed
from settled_traces
where ($service::varchar is null or service = $service::varchar)
  and ($since_ns::bigint is null or start_ns >= $since_ns::bigint)
  and ($until_ns::bigint is null or start_ns < $until_ns::bigint)
