-- What model calls do not say, by who tells of them: counts of calls; see the migration rollups.
-- parameters: service, since_ns, until_ns
-- columns: service, dialect, scope, scope_version, calls, no_model, no_tokens, no_price, no_session, no_user, no_input, no_output, no_end
-- order: calls descending, service, dialect, scope, scope_version
select
  service, dialect, scope, scope_version, sum(calls)::bigint as calls, sum(no_model)::bigint as no_model,
  sum(no_tokens)::bigint as no_tokens, coalesce(sum(calls) filter (where unpriced is not null), 0)::bigint as no_price,
  sum(no_session)::bigint as no_session, sum(no_user)::bigint as no_user, sum(no_input)::bigint as no_input,
  sum(no_output)::bigint as no_output, sum(no_end)::bigint as no_end
from calls_by_minute
where ($service::varchar is null or service = $service::varchar)
  and ($since_ns::bigint is null or minute_ns >= $since_ns::bigint)
  and ($until_ns::bigint is null or minute_ns < $until_ns::bigint)
  and kind in ('llm', 'embedding')
group by service, dialect, scope, scope_version
having sum(calls) > 0
order by calls desc, service, dialect, scope, scope_version
