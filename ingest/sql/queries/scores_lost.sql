-- Scores that judge no single decision, and why: what they name is not here (trace, span, response, session), the trace
-- has no model call (no_choice), or they name a session of which a service made several decisions (several), which is
-- one decision or episode only where the settings of the service say so.
-- parameters: none
-- columns: why, service, scores
-- order: why, service
with decided as (
  select trace_id, any_value(service) as service, any_value(session_id) as session_id
  from settled_calls where kind in ('llm', 'embedding') group by trace_id
),
sessions as (
  select session_id, service, count(*) as decisions from decided where session_id is not null group by session_id, service
),
told as (
  select
    coalesce(n.service, t.service) as service,
    case
      when s.trace_id is not null and t.trace_id is null then 'trace'
      when s.trace_id is not null and d.trace_id is null then 'no_choice'
      when s.trace_id is not null then null
      when s.span_id is not null then 'span'
      when s.response_id is not null then 'response'
      when n.session_id is null then 'session'
      when n.decisions > 1 then 'several'
    end as why
  from scores s
  left join settled_traces t on t.trace_id = s.trace_id
  left join decided d on d.trace_id = s.trace_id
  left join sessions n
    on s.trace_id is null and s.span_id is null and s.response_id is null and n.session_id = s.session_id
)
select why, service, count(*) as scores from told
where why is not null
group by why, service
order by why, service
