-- Scores by the day (UTC) on which they were given: how many, and the mean of those that mean something on [0, 1].
-- parameters: service, since_ns, until_ns
-- columns: day_ns, name, source, scores, mapped, mean, spread
-- order: day_ns, name, source
select
  s.time_ns - s.time_ns % 86400000000000 as day_ns, s.name, s.source, count(*) as scores, count(s.value01) as mapped,
  avg(s.value01) as mean, stddev_samp(s.value01) as spread
from scores s left join settled_traces t on t.trace_id = s.trace_id
where s.time_ns > 0
  and ($service::varchar is null or t.service = $service::varchar)
  and ($since_ns::bigint is null or coalesce(t.start_ns, s.time_ns) >= $since_ns::bigint)
  and ($until_ns::bigint is null or coalesce(t.start_ns, s.time_ns) < $until_ns::bigint)
group by day_ns, s.name, s.source
order by day_ns, s.name, s.source
