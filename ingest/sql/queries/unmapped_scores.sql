-- Scores by name, with how many mean nothing on [0, 1], and how many name a trace that is not there.
-- parameters: none
-- columns: name, scores, unmapped, lowest, highest, labels, orphans
-- order: name
select
  s.name, count(*) as scores, count(*) filter (where s.value01 is null) as unmapped,
  min(s.value) as lowest, max(s.value) as highest, count(distinct s.label) as labels,
  count(*) filter (where s.session_id is null and t.trace_id is null) as orphans
from scores s left join settled_traces t on t.trace_id = s.trace_id
group by s.name
order by s.name
