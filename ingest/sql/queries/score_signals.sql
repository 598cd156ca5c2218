-- Scores by what they judge and who gives them: of the traces of a service that began within some time, or of all. `model`
-- is that of the trace ("several models"; NULL: it called none); service and model are NULL of scores that name no trace
-- that is there (`orphans`). `traces` are those with a score that means something on [0, 1]; `drawn` scores say with what
-- probability they were to be given, `least_probability` the smallest; delays are from the end of the trace, in seconds.
-- `bin_0` to `bin_9` count the values by tenths.
-- parameters: service, since_ns, until_ns
-- columns: service, model, name, source, scores, traces, unmapped, orphans, of_steps, of_sessions, drawn, least_probability, lowest, highest, labels, mean, delay_p50_s, delay_p90_s, first_ns, last_ns, bin_0, bin_1, bin_2, bin_3, bin_4, bin_5, bin_6, bin_7, bin_8, bin_9
-- order: name, source, service, model
with placed as (
  select
    s.trace_id, s.span_id, s.session_id, s.name, s.source, s.value, s.value01, s.label, s.probability, s.time_ns,
    t.service, t.trace_id is not null as there,
    case when contains(t.models, '","') then '["several models"]' else t.models end as model,
    case when s.time_ns > 0 and t.end_ns > 0 then (s.time_ns - t.end_ns) / 1e9 end as delay_s,
    least(floor(s.value01 * 10), 9) as bin
  from scores s left join settled_traces t on t.trace_id = s.trace_id
  where ($service::varchar is null or t.service = $service::varchar)
    and ($since_ns::bigint is null or coalesce(t.start_ns, s.time_ns) >= $since_ns::bigint)
    and ($until_ns::bigint is null or coalesce(t.start_ns, s.time_ns) < $until_ns::bigint)
)
select
  service, json_extract_string(model, '$[0]') as model, name, source, count(*) as scores,
  count(distinct trace_id) filter (where value01 is not null and there) as traces,
  count(*) filter (where value01 is null) as unmapped,
  count(*) filter (where not there and session_id is null) as orphans,
  count(span_id) as of_steps, count(*) filter (where trace_id is null and session_id is not null) as of_sessions,
  count(probability) as drawn, min(probability) as least_probability, min(value) as lowest, max(value) as highest,
  count(distinct label) as labels, avg(value01) as mean,
  quantile_cont(delay_s, 0.5) as delay_p50_s, quantile_cont(delay_s, 0.9) as delay_p90_s,
  min(nullif(time_ns, 0)) as first_ns, max(nullif(time_ns, 0)) as last_ns,
  count(*) filter (where bin = 0) as bin_0, count(*) filter (where bin = 1) as bin_1,
  count(*) filter (where bin = 2) as bin_2, count(*) filter (where bin = 3) as bin_3,
  count(*) filter (where bin = 4) as bin_4, count(*) filter (where bin = 5) as bin_5,
  count(*) filter (where bin = 6) as bin_6, count(*) filter (where bin = 7) as bin_7,
  count(*) filter (where bin = 8) as bin_8, count(*) filter (where bin = 9) as bin_9
from placed
group by service, model, name, source
order by name, source, service, model
