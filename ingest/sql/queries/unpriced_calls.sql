-- Calls without a cost, by the reason, with the tokens that they told; those that told none are `uncounted_calls`: as the
-- query unpriced, from the rollups.
-- parameters: service, since_ns, until_ns
-- columns: service, model, reason, calls, tokens, uncounted_calls
-- order: calls descending, service, model, reason
select
  service, model, unpriced as reason, sum(calls)::bigint as calls, sum(input_tokens + output_tokens)::bigint as tokens,
  sum(no_tokens)::bigint as uncounted_calls
from calls_by_minute
where ($service::varchar is null or service = $service::varchar)
  and ($since_ns::bigint is null or minute_ns >= $since_ns::bigint)
  and ($until_ns::bigint is null or minute_ns < $until_ns::bigint)
  and unpriced is not null
group by service, model, unpriced
having sum(calls) > 0
order by calls desc, service, model, reason
