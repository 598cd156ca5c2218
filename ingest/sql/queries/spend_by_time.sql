-- What calls cost, by the time of their start in steps of `step_ns`. USD of calls that have a cost; the parts leave
-- what was not divided by token class. `unpriced` calls should have a cost and have none; `cost_before_retry` was paid for
-- attempts that were tried again, `cost_of_errors` for calls that failed.
-- parameters: service, since_ns, until_ns, step_ns
-- columns: at_ns, calls, errors, priced, unpriced, cost_usd, input_usd, cache_read_usd, cache_write_usd, output_usd, reasoning_usd, tools_usd, input_tokens, cache_read_tokens, cache_write_tokens, output_tokens, reasoning_tokens, cost_before_retry, cost_of_errors
-- order: at_ns
select
  minute_ns - minute_ns % $step_ns::bigint as at_ns, sum(calls)::bigint as calls, sum(errors)::bigint as errors,
  sum(priced)::bigint as priced, coalesce(sum(calls) filter (where unpriced is not null), 0)::bigint as unpriced,
  sum(cost_usd) as cost_usd,
  sum(input_usd) as input_usd, sum(cache_read_usd) as cache_read_usd, sum(cache_write_usd) as cache_write_usd,
  sum(output_usd) as output_usd, sum(reasoning_usd) as reasoning_usd, sum(tools_usd) as tools_usd,
  sum(input_tokens)::bigint as input_tokens, sum(cache_read_tokens)::bigint as cache_read_tokens,
  sum(cache_write_tokens)::bigint as cache_write_tokens, sum(output_tokens)::bigint as output_tokens,
  sum(reasoning_tokens)::bigint as reasoning_tokens,
  coalesce(sum(cost_usd) filter (where retried), 0) as cost_before_retry,
  coalesce(sum(cost_usd) filter (where status = 'error'), 0) as cost_of_errors
from calls_by_minute
where ($service::varchar is null or service = $service::varchar)
  and ($since_ns::bigint is null or minute_ns >= $since_ns::bigint)
  and ($until_ns::bigint is null or minute_ns < $until_ns::bigint)
group by at_ns
having sum(calls) > 0
order by at_ns
