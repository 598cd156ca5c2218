-- Spans that scores name, with the call that each shows; NULL: it shows none.
-- parameters: none
-- columns: trace_id, span_id, call_id, start_ns, end_ns
-- order: trace_id, span_id
select
  s.trace_id, s.span_id, any_value(r.call_id) as call_id, nullif(min(s.start_ns), 0) as start_ns,
  nullif(max(s.end_ns), 0) as end_ns
from span_log s
semi join score_log j on j.span_id = s.span_id
left join span_roles r on r.trace_id = s.trace_id and r.span_id = s.span_id
group by s.trace_id, s.span_id
order by s.trace_id, s.span_id
