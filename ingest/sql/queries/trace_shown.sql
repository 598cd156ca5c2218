-- The spans of one trace, each once, the first `most` by their start; `found` counts all. `call_id` is the call that a
-- span shows and `role` how (see span_roles), NULL: the trace waits to be settled. `draw` and `spec` are what a router
-- logged beside a decision. Bounds on the start spare reading the rest; a span with a wrong clock lies outside.
-- parameters: trace_id, most, since_ns, until_ns
-- columns: found, span_id, parent_span_id, name, service, scope, kind, start_ns, end_ns, status, status_message, error_type, model, agent, tool, input_tokens, output_tokens, role, call_id, policy_action, draw, spec
-- order: start_ns, span_id
with chosen as (
  select * from span_copies
  where trace_id = $trace_id::varchar
    and ($since_ns::bigint is null or start_ns >= $since_ns::bigint)
    and ($until_ns::bigint is null or start_ns < $until_ns::bigint)
  qualify row_number() over (partition by trace_id, span_id order by precedence desc) = 1
),
placed as (
  select span_id, any_value(role) as role, any_value(call_id) as call_id
  from span_roles where trace_id = $trace_id::varchar group by span_id
)
select
  count(*) over () as found, c.span_id, c.parent_span_id, c.name, c.service, c.scope, c.kind, c.start_ns, c.end_ns,
  c.status, c.status_message, c.error_type, coalesce(c.model_returned, c.model_requested) as model, c.agent, c.tool,
  c.input_tokens, c.output_tokens, p.role, p.call_id, c.policy_action,
  coalesce(
    json_extract_string(c.attributes, '$."policy.draw"'),
    json_extract_string(c.attributes, '$."litellm.metadata.policy.draw"'),
    json_extract_string(c.attributes, '$."litellm.metadata.requester_metadata.policy.draw"')
  ) as draw,
  json_extract_string(c.attributes, '$."policy.features.spec"') as spec
from chosen c left join placed p on p.span_id = c.span_id
order by c.start_ns, c.span_id
limit coalesce($most::bigint, 500)
