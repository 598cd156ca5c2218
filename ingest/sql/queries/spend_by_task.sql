-- What traces cost, by session or by user (`who`): the 200 dearest, and all others, `others` of them, as one row. A NULL name:
-- those that name none. `unpriced` calls are in no cost.
-- parameters: who, service, since_ns, until_ns
-- columns: name, others, tasks, calls, errors, unpriced, cost_usd
-- order: others, cost_usd descending, tasks descending, name
with found as (
  select
    case when $who::varchar = 'user' then user_id else session_id end as name, count(*) as tasks,
    coalesce(sum(calls), 0) as calls, coalesce(sum(errors), 0) as errors, coalesce(sum(unpriced), 0) as unpriced,
    coalesce(sum(cost_usd), 0) as cost_usd
  from settled_traces
  where ($service::varchar is null or service = $service::varchar)
    and ($since_ns::bigint is null or start_ns >= $since_ns::bigint)
    and ($until_ns::bigint is null or start_ns < $until_ns::bigint)
  group by 1
),
ranked as (
  select *, row_number() over (order by cost_usd desc, tasks desc, name) > 200 as other from found
)
select
  case when not other then name end as name, count(*) filter (where other) as others, sum(tasks)::bigint as tasks,
  sum(calls)::bigint as calls, sum(errors)::bigint as errors, sum(unpriced)::bigint as unpriced, sum(cost_usd) as cost_usd
from ranked
group by other, case when not other then name end
order by others, cost_usd desc, tasks desc, name
