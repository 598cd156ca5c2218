-- Decisions whose features the router logged, newest first: what it logged (the vector, its hash or both) and what they
-- were computed from. Of the calls that one decision of a trace holds for, the first: later ones have other prompts.
-- parameters: most
-- columns: service, scope, scope_version, policy_id, policy_version, logged, logged_hash, spec, input_text, tools_offered
-- order: start_ns descending, span_id
with carried as (
  select
    trace_id, span_id,
    any_value(coalesce(
      json_extract_string(attributes, '$."policy.features.hash"'),
      json_extract_string(attributes, '$."litellm.metadata.policy.features.hash"')
    )) as logged_hash,
    any_value(coalesce(
      json_extract_string(attributes, '$."policy.features.spec"'),
      json_extract_string(attributes, '$."litellm.metadata.policy.features.spec"')
    )) as spec
  from span_log
  where policy_features is not null or policy_action is not null
  group by trace_id, span_id
),
decided as (
  select s.trace_id, s.span_id, s.scope, s.scope_version, p.logged_hash, p.spec
  from settled_calls s left join carried p on p.trace_id = s.trace_id and p.span_id = s.span_id
  where s.kind = 'llm' and (s.policy_features is not null or p.logged_hash is not null)
  qualify row_number() over (
    partition by s.trace_id, coalesce(s.policy_features, p.logged_hash) order by s.start_ns, s.span_id
  ) = 1
)
select
  c.service, d.scope, d.scope_version, c.policy_id, c.policy_version, c.policy_features as logged, d.logged_hash, d.spec,
  c.input_text, c.tools_offered
from decided d join calls c on c.trace_id = d.trace_id and c.span_id = d.span_id
where c.input_text is not null
order by c.start_ns desc, c.span_id
limit $most::bigint
