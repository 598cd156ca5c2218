-- What calls cost, by who made them and by which model: the 2,000 dearest kinds of steps, and all others as one row whose
-- names are "…". Columns as in spend_by_time, but tokens are of calls that are not unpriced; `step` is the name without the
-- model in it.
-- parameters: service, since_ns, until_ns
-- columns: service, workflow, agent, kind, step, tool, provider, model, calls, errors, priced, unpriced, retried, cost_usd, input_usd, cache_read_usd, cache_write_usd, output_usd, reasoning_usd, tools_usd, input_tokens, cache_read_tokens, cache_write_tokens, output_tokens, reasoning_tokens, cost_before_retry, cost_of_errors
-- order: cost_usd descending, calls descending, service, agent, step, model
with found as (
  select
    service, workflow, agent, kind, name, tool, provider, model,
    sum(calls)::bigint as calls, sum(errors)::bigint as errors, sum(priced)::bigint as priced,
    coalesce(sum(calls) filter (where unpriced is not null), 0)::bigint as unpriced,
    coalesce(sum(calls) filter (where retried), 0)::bigint as retried, sum(cost_usd) as cost_usd,
    sum(input_usd) as input_usd, sum(cache_read_usd) as cache_read_usd, sum(cache_write_usd) as cache_write_usd,
    sum(output_usd) as output_usd, sum(reasoning_usd) as reasoning_usd, sum(tools_usd) as tools_usd,
    coalesce(sum(input_tokens) filter (where unpriced is null), 0)::bigint as input_tokens,
    coalesce(sum(cache_read_tokens) filter (where unpriced is null), 0)::bigint as cache_read_tokens,
    coalesce(sum(cache_write_tokens) filter (where unpriced is null), 0)::bigint as cache_write_tokens,
    coalesce(sum(output_tokens) filter (where unpriced is null), 0)::bigint as output_tokens,
    coalesce(sum(reasoning_tokens) filter (where unpriced is null), 0)::bigint as reasoning_tokens,
    coalesce(sum(cost_usd) filter (where retried), 0) as cost_before_retry,
    coalesce(sum(cost_usd) filter (where status = 'error'), 0) as cost_of_errors
  from calls_by_minute
  where ($service::varchar is null or service = $service::varchar)
  and ($since_ns::bigint is null or minute_ns >= $since_ns::bigint)
  and ($until_ns::bigint is null or minute_ns < $until_ns::bigint)
  group by service, workflow, agent, kind, name, tool, provider, model
  having sum(calls) > 0
),
named as (
  select
    * replace (
      coalesce(service, '') as service,
      case when model is not null and length(model) > 0 then trim(replace(name, model, '')) else name end as name
    ),
    row_number() over (order by cost_usd desc, calls desc) > 2000 as other
  from found
)
select
  case when other then '…' else service end as service, case when other then '…' else workflow end as workflow,
  case when other then '…' else agent end as agent, case when other then '…' else kind end as kind,
  case when other then '…' else coalesce(nullif(name, ''), kind) end as step, case when other then '…' else tool end as tool,
  case when other then '…' else provider end as provider, case when other then '…' else model end as model,
  sum(calls)::bigint as calls, sum(errors)::bigint as errors, sum(priced)::bigint as priced,
  sum(unpriced)::bigint as unpriced, sum(retried)::bigint as retried, sum(cost_usd) as cost_usd, sum(input_usd) as input_usd,
  sum(cache_read_usd) as cache_read_usd, sum(cache_write_usd) as cache_write_usd, sum(output_usd) as output_usd,
  sum(reasoning_usd) as reasoning_usd, sum(tools_usd) as tools_usd, sum(input_tokens)::bigint as input_tokens,
  sum(cache_read_tokens)::bigint as cache_read_tokens, sum(cache_write_tokens)::bigint as cache_write_tokens,
  sum(output_tokens)::bigint as output_tokens, sum(reasoning_tokens)::bigint as reasoning_tokens,
  sum(cost_before_retry) as cost_before_retry, sum(cost_of_errors) as cost_of_errors
from named
group by 1, 2, 3, 4, 5, 6, 7, 8
order by cost_usd desc, calls desc, service, agent, step, model
