-- What some settled calls come to, by trace: see the migration rollups. {calls} has the columns of settled_calls.
select
  trace_id, count(*) as calls, count(*) filter (where kind in ('llm', 'embedding')) as model_calls,
  count(*) filter (where status = 'error') as errors, count(attempt_of) as retries, count(unpriced) as unpriced,
  sum(cost_usd) as cost_usd,
  coalesce(sum(greatest(least(coalesce(input_tokens, 0), 1099511627776), 0)), 0)::bigint as input_tokens,
  coalesce(sum(greatest(least(coalesce(output_tokens, 0), 1099511627776), 0)), 0)::bigint as output_tokens,
  case when count(distinct user_id) = 1 then any_value(user_id) end as user_id,
  to_json(list_sort(list(distinct model) filter (where model is not null)))::varchar as models,
  to_json(list_sort(list(distinct agent) filter (where agent is not null)))::varchar as agents,
  to_json(list_sort(list(distinct tool) filter (where tool is not null)))::varchar as tools,
  to_json(list_sort(list(distinct policy_action) filter (where policy_action is not null)))::varchar as actions
from (select *, coalesce(model_returned, model_requested) as model from {calls})
group by trace_id
