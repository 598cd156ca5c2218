-- What the lake holds. A trace is unsettled when spans or events of it arrived after it was last settled, or never was.
-- parameters: none
-- columns: spans, calls, scores, traces, unsettled_traces
-- order: one row
with arrivals as (
  select trace_id, max(batch) as batch from span_log group by trace_id
),
later_events as (
  select trace_id, max(batch) as batch from event_log where trace_id is not null group by trace_id
),
waiting as (
  select a.trace_id
  from arrivals a
  left join later_events e on e.trace_id = a.trace_id
  left join settled_traces t on t.trace_id = a.trace_id
  where t.batch is null or t.batch < greatest(a.batch, coalesce(e.batch, a.batch))
)
select
  (select count(*) from (select distinct trace_id, span_id from span_log)) as spans,
  (select count(*) from settled_calls) as calls,
  (select count(distinct score_id) from score_log) as scores,
  (select count(*) from arrivals) as traces,
  (select count(*) from waiting) as unsettled_traces
