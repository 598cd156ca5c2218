-- How many traces started, in steps of `step_ns`, and what they came to. `priced` of them have a call with a cost.
-- parameters: service, since_ns, until_ns, step_ns
-- columns: at_ns, tasks, priced, failed, cost_usd, spans
-- order: at_ns
select
  start_ns - start_ns % $step_ns::bigint as at_ns, count(*) as tasks, count(cost_usd) as priced,
  count(*) filter (where errors > 0) as failed, coalesce(sum(cost_usd), 0) as cost_usd,
  coalesce(sum(spans), 0)::bigint as spans
from settled_traces
where ($service::varchar is null or service = $service::varchar)
  and ($since_ns::bigint is null or start_ns >= $since_ns::bigint)
  and ($until_ns::bigint is null or start_ns < $until_ns::bigint)
group by 1
order by 1
