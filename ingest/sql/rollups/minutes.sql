-- What some settled calls add to calls_by_minute, or with the sign -1 take away: see the migration rollups.
-- {sign} is 1 or -1, {calls} what has the columns of settled_calls.
select
  case when start_ns > 0 then start_ns - start_ns % grain_ns end as minute_ns, grain_ns,
  service, workflow, agent, kind,
  regexp_replace(name, '[0-9a-f]{{12,}}|[0-9]{{9,}}|[0-9a-f]{{8}}-[0-9a-f]{{4}}-[0-9a-f-]+', '*', 'g') as name,
  tool, provider, coalesce(model_returned, model_requested) as model, status, unpriced, attempt_of is not null as retried,
  dialect, scope, scope_version,
  {sign} * count(*) as calls, {sign} * count(*) filter (where status = 'error') as errors, {sign} * count(cost_usd) as priced,
  {sign} * coalesce(sum(greatest(least(coalesce(input_tokens, 0), 1099511627776), 0)), 0)::bigint as input_tokens,
  {sign} * coalesce(sum(greatest(least(coalesce(cache_read_tokens, 0), 1099511627776), 0)), 0)::bigint as cache_read_tokens,
  {sign} * coalesce(sum(greatest(least(coalesce(cache_write_tokens, 0), 1099511627776), 0)), 0)::bigint as cache_write_tokens,
  {sign} * coalesce(sum(greatest(least(coalesce(output_tokens, 0), 1099511627776), 0)), 0)::bigint as output_tokens,
  {sign} * coalesce(sum(greatest(least(coalesce(reasoning_tokens, 0), 1099511627776), 0)), 0)::bigint as reasoning_tokens,
  {sign} * coalesce(sum(cost_usd), 0) as cost_usd, {sign} * coalesce(sum(input_usd), 0) as input_usd,
  {sign} * coalesce(sum(cache_read_usd), 0) as cache_read_usd, {sign} * coalesce(sum(cache_write_usd), 0) as cache_write_usd,
  {sign} * coalesce(sum(output_usd), 0) as output_usd, {sign} * coalesce(sum(reasoning_usd), 0) as reasoning_usd,
  {sign} * coalesce(sum(tools_usd), 0) as tools_usd,
  {sign} * count(*) filter (where model_returned is null and model_requested is null) as no_model,
  {sign} * count(*) filter (where input_tokens is null and output_tokens is null) as no_tokens,
  {sign} * count(*) filter (where session_id is null) as no_session,
  {sign} * count(*) filter (where user_id is null) as no_user,
  {sign} * count(*) filter (where input_chars = 0) as no_input,
  {sign} * count(*) filter (where output_chars = 0) as no_output,
  {sign} * count(*) filter (where latency_s is null) as no_end,
  {sign} * coalesce(sum(latency_s), 0) as latency_s,
  {sign} * count(*) filter (where latency_s < 0.1) as under_100ms,
  {sign} * count(*) filter (where latency_s >= 0.1 and latency_s < 0.2) as under_200ms,
  {sign} * count(*) filter (where latency_s >= 0.2 and latency_s < 0.5) as under_500ms,
  {sign} * count(*) filter (where latency_s >= 0.5 and latency_s < 1) as under_1s,
  {sign} * count(*) filter (where latency_s >= 1 and latency_s < 2) as under_2s,
  {sign} * count(*) filter (where latency_s >= 2 and latency_s < 5) as under_5s,
  {sign} * count(*) filter (where latency_s >= 5 and latency_s < 10) as under_10s,
  {sign} * count(*) filter (where latency_s >= 10 and latency_s < 20) as under_20s,
  {sign} * count(*) filter (where latency_s >= 20 and latency_s < 50) as under_50s,
  {sign} * count(*) filter (where latency_s >= 50 and latency_s < 100) as under_100s,
  {sign} * count(*) filter (where latency_s >= 100 and latency_s < 200) as under_200s,
  {sign} * count(*) filter (where latency_s >= 200) as longer,
  false as merged, day
from (
  select *, (end_ns::double - start_ns::double) / 1e9 as latency_s,
    case when day is null or start_ns < (day - date '1970-01-01') * 86400000000000 - 172800000000000
      then 3600000000000 else 60000000000 end as grain_ns
  from {calls}
)
group by all
