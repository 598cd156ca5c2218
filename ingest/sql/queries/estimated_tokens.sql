-- Calls without token counts by service and model, with estimates of their tokens from the length of their messages (see
-- the view token_estimates): for no cost and no saving. `estimated_calls` have one; NULL tokens: none has.
-- parameters: none
-- columns: service, model, calls, estimated_calls, estimated_input_tokens, estimated_output_tokens, calls_learned_from
-- order: calls descending, service, model
select
  service, model, count(*) as calls,
  count(*) filter (where coalesce(estimated_input_tokens, estimated_output_tokens) is not null) as estimated_calls,
  sum(estimated_input_tokens)::bigint as estimated_input_tokens,
  sum(estimated_output_tokens)::bigint as estimated_output_tokens,
  coalesce(any_value(calls_learned_from), 0) as calls_learned_from
from token_estimates
group by service, model
order by calls desc, service, model
