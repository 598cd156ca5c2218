-- How complete the telemetry is, from the rollups: counts of calls by who tells of them, and by why they have no cost
-- (`reason`; `model` where there is one). Model calls are llm and embedding. `no_...` count calls that do not say it.
-- parameters: service, since_ns, until_ns
-- columns: service, kind, dialect, scope, scope_version, reason, model, calls, errors, priced, tokens, no_model, no_tokens, no_session, no_user, no_input, no_output, no_end
-- order: service, kind, dialect, scope, scope_version, reason, model
select
  service, kind, dialect, scope, scope_version, unpriced as reason, case when unpriced is not null then model end as model,
  sum(calls)::bigint as calls, sum(errors)::bigint as errors, sum(priced)::bigint as priced,
  coalesce(sum(input_tokens + output_tokens) filter (where unpriced is not null or priced <> 0), 0)::bigint as tokens,
  sum(no_model)::bigint as no_model, sum(no_tokens)::bigint as no_tokens, sum(no_session)::bigint as no_session,
  sum(no_user)::bigint as no_user, sum(no_input)::bigint as no_input, sum(no_output)::bigint as no_output,
  sum(no_end)::bigint as no_end
from calls_by_minute
where ($service::varchar is null or service = $service::varchar)
  and ($since_ns::bigint is null or minute_ns >= $since_ns::bigint)
  and ($until_ns::bigint is null or minute_ns < $until_ns::bigint)
group by all
having sum(calls) > 0
order by service, kind, dialect, scope, scope_version, reason, model
