-- Spans that carry a routing decision of their own, whatever they are, each decision once: left out are those around a
-- call that carries the same, those that repeat the decision of the span right above them, and other sights and attempts
-- of the same call. `call_id` is the call that the span shows, of several attempts the last; NULL for a span that is no
-- call. Of all traces, or of one.
-- parameters: trace_id
-- columns: trace_id, span_id, call_id, start_ns, end_ns, policy_id, policy_action, policy_propensity, policy_candidates, policy_probabilities, policy_features, policy_reason, policy_arm, policy_explored
-- order: trace_id, start_ns, span_id
with carried as (
  select
    trace_id, span_id, parent_span_id, start_ns, end_ns, policy_id, policy_action, policy_propensity, policy_candidates,
    policy_probabilities, policy_features, policy_reason, policy_arm,
    try_cast(json_extract_string(attributes, '$."policy.explored"') as boolean) as policy_explored
  from span_copies
  where policy_action is not null and ($trace_id::varchar is null or trace_id = $trace_id::varchar)
  qualify row_number() over (partition by trace_id, span_id order by precedence desc) = 1
),
placed as (
  select c.*, r.call_id is not null as is_call, coalesce(k.attempt_of, r.call_id) as call_id
  from carried c
  left join span_roles r on r.trace_id = c.trace_id and r.span_id = c.span_id
    and ($trace_id::varchar is null or r.trace_id = $trace_id::varchar)
  left join settled_calls k on k.trace_id = c.trace_id and k.span_id = r.call_id
    and ($trace_id::varchar is null or k.trace_id = $trace_id::varchar)
),
told as (  -- by the span itself, not by the one above
  select c.*
  from placed c
  anti join placed a on a.trace_id = c.trace_id and a.span_id = c.parent_span_id and (a.is_call or not c.is_call)
    and a.policy_action = c.policy_action and a.policy_id is not distinct from c.policy_id
    and a.policy_propensity is not distinct from c.policy_propensity
    and a.policy_probabilities is not distinct from c.policy_probabilities
),
around as (  -- a call that carries the same decision: a gateway writes it onto all spans that are open
  select s.trace_id, s.span_id, s.policy_features, c.span_id as call_span_id
  from told s join told c on c.is_call and not s.is_call and s.trace_id = c.trace_id
    and (c.start_ns between s.start_ns and s.end_ns or c.parent_span_id = s.span_id)
    and s.policy_action = c.policy_action and s.policy_id is not distinct from c.policy_id
    and s.policy_propensity is not distinct from c.policy_propensity
    and s.policy_probabilities is not distinct from c.policy_probabilities
),
lent as (
  select trace_id, call_span_id, max(policy_features) as features from around group by trace_id, call_span_id
),
apart as (
  select t.* replace (coalesce(t.policy_features, l.features) as policy_features)
  from told t
  left join lent l on l.trace_id = t.trace_id and l.call_span_id = t.span_id
  anti join around a on a.trace_id = t.trace_id and a.span_id = t.span_id
)
select
  trace_id, span_id, call_id, nullif(start_ns, 0) as start_ns, nullif(end_ns, 0) as end_ns, policy_id, policy_action,
  policy_propensity, policy_candidates, policy_probabilities, policy_features, policy_reason, policy_arm, policy_explored
from apart
qualify row_number() over (
  partition by trace_id, coalesce(call_id, span_id), policy_id, policy_action, policy_propensity, policy_probabilities
  order by start_ns, span_id
) = 1
order by trace_id, start_ns, span_id
