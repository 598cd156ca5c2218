-- Calls without a cost, by the reason, with the tokens that they told; those that told none are `uncounted_calls`.
-- parameters: none
-- columns: service, model, reason, calls, tokens, uncounted_calls
-- order: calls descending, service, model, reason
select
  service, coalesce(model_returned, model_requested) as model, unpriced as reason, count(*) as calls,
  coalesce(sum(coalesce(input_tokens, 0) + coalesce(output_tokens, 0)), 0)::bigint as tokens,
  count(*) filter (where coalesce(input_tokens, output_tokens) is null) as uncounted_calls
from settled_calls
where unpriced is not null
group by all
order by calls desc, service, model, reason
