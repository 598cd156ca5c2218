-- What traces cost, by session or by user (`who`): the 200 dearest; NULL: those that name none. A trace with a user for some
-- of its calls only counts for that one. `unpriced` calls are in no cost.
-- parameters: who, service, since_ns, until_ns
-- columns: name, tasks, calls, errors, unpriced, cost_usd
-- order: cost_usd descending, tasks descending, name
select
  case when $who::varchar = 'user' then user_id else session_id end as name, count(*) as tasks,
  coalesce(sum(calls), 0)::bigint as calls, coalesce(sum(errors), 0)::bigint as errors,
  coalesce(sum(unpriced), 0)::bigint as unpriced, coalesce(sum(cost_usd), 0) as cost_usd
from settled_traces
where ($service::varchar is null or service = $service::varchar)
  and ($since_ns::bigint is null or start_ns >= $since_ns::bigint)
  and ($until_ns::bigint is null or start_ns < $until_ns::bigint)
group by 1
order by cost_usd desc, tasks desc, name
limit 200
