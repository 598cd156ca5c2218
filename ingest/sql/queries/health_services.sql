-- How complete the telemetry of each service is, from the rollups: counts of all calls, and of model calls (llm and
-- embedding) without a cost, without a session, and failed. `tokens` are those told by calls that were to be priced.
-- parameters: service, since_ns, until_ns
-- columns: service, calls, llm_calls, unpriced, errors, no_session, uncounted, billable_calls, unpriced_calls, tokens, unpriced_tokens, uncounted_calls
-- order: service
select
  service, sum(calls)::bigint as calls, coalesce(sum(calls) filter (where kind = 'llm'), 0)::bigint as llm_calls,
  coalesce(sum(calls) filter (where unpriced is not null), 0)::bigint as unpriced,
  coalesce(sum(errors) filter (where kind in ('llm', 'embedding')), 0)::bigint as errors,
  coalesce(sum(no_session) filter (where kind in ('llm', 'embedding')), 0)::bigint as no_session,
  coalesce(sum(no_tokens) filter (where kind in ('llm', 'embedding')), 0)::bigint as uncounted,
  coalesce(sum(case when unpriced is null then priced else calls end), 0)::bigint as billable_calls,
  coalesce(sum(calls) filter (where unpriced is not null), 0)::bigint as unpriced_calls,
  coalesce(sum(input_tokens + output_tokens) filter (where unpriced is not null or priced <> 0), 0)::bigint as tokens,
  coalesce(sum(input_tokens + output_tokens) filter (where unpriced is not null), 0)::bigint as unpriced_tokens,
  coalesce(sum(no_tokens) filter (where unpriced is not null), 0)::bigint as uncounted_calls
from calls_by_minute
where ($service::varchar is null or service = $service::varchar)
  and ($since_ns::bigint is null or minute_ns >= $since_ns::bigint)
  and ($until_ns::bigint is null or minute_ns < $until_ns::bigint)
group by service
having sum(calls) > 0
order by service
