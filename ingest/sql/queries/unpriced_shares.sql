-- How much of each service's spend has no price: calls that were to be priced, and the tokens that they told. A call
-- without token counts is in no token figure; `uncounted_calls` are those of the unpriced ones.
-- parameters: none
-- columns: service, calls, unpriced_calls, tokens, unpriced_tokens, uncounted_calls
-- order: service
with spent as (
  select service, cost_usd is null as without,
    case when coalesce(input_tokens, output_tokens) is not null
      then coalesce(input_tokens, 0) + coalesce(output_tokens, 0) end as tokens
  from settled_calls
  where cost_usd is not null or unpriced is not null
)
select
  service, count(*) as calls, count(*) filter (where without) as unpriced_calls,
  coalesce(sum(tokens), 0)::bigint as tokens, coalesce(sum(tokens) filter (where without), 0)::bigint as unpriced_tokens,
  count(*) filter (where without and tokens is null) as uncounted_calls
from spent
group by service
order by service
