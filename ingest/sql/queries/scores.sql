-- Scores, with the service of the trace that they judge. The window is over the scored trace's start where it is known,
-- because judgements come later than what they judge; else over the score's own time.
-- parameters: service, since_ns, until_ns
-- columns: score_id, trace_id, span_id, session_id, response_id, name, value, value01, label, explanation, source, time_ns, probability, service
-- order: time_ns, score_id
with traces_started as (
  select trace_id, min(start_ns) as start_ns from settled_calls group by trace_id
),
placed as (
  select s.*, t.service, coalesce(b.start_ns, s.time_ns) as at_ns
  from scores s
  left join settled_traces t on t.trace_id = s.trace_id
  left join traces_started b on b.trace_id = s.trace_id
)
select * exclude (at_ns)
from placed
where ($service::varchar is null or service = $service::varchar)
  and ($since_ns::bigint is null or at_ns >= $since_ns::bigint)
  and ($until_ns::bigint is null or at_ns < $until_ns::bigint)
order by time_ns, score_id
