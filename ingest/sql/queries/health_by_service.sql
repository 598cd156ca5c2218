-- How complete each service's telemetry is. `unpriced`, `no_session` and `errors` count model calls (llm and embedding)
-- without a cost, without a session, and failed; `scored_traces` the traces with at least one score.
-- parameters: none
-- columns: service, spans, calls, llm_calls, unpriced, scored_traces, traces, errors, no_session
-- order: service
with sent as (
  select service, count(*) as spans, count(distinct trace_id) as traces
  from (select distinct service, trace_id, span_id from span_log)
  group by service
),
stepped as (
  select
    service, count(*) as calls,
    count(*) filter (where kind = 'llm') as llm_calls,
    count(*) filter (where unpriced is not null) as unpriced,
    count(*) filter (where kind in ('llm', 'embedding') and status = 'error') as errors,
    count(*) filter (where kind in ('llm', 'embedding') and session_id is null) as no_session
  from settled_calls group by service
),
scored as (
  select t.service, count(distinct s.trace_id) as scored_traces
  from scores s join settled_traces t on t.trace_id = s.trace_id
  group by t.service
)
select
  sent.service, sent.spans, coalesce(stepped.calls, 0) as calls, coalesce(stepped.llm_calls, 0) as llm_calls,
  coalesce(stepped.unpriced, 0) as unpriced, coalesce(scored.scored_traces, 0) as scored_traces, sent.traces,
  coalesce(stepped.errors, 0) as errors, coalesce(stepped.no_session, 0) as no_session
from sent
left join stepped on stepped.service = sent.service
left join scored on scored.service = sent.service
order by sent.service
