-- Decisions whose features the router logged, newest first: what it logged and what they were computed from.
-- parameters: most
-- columns: service, policy_id, policy_version, logged, logged_hash, spec, input_text, tools_offered
-- order: start_ns descending, span_id
with carried as (
  select
    trace_id, span_id,
    any_value(json_extract_string(attributes, '$."policy.features.hash"')) as logged_hash,
    any_value(json_extract_string(attributes, '$."policy.features.spec"')) as spec
  from span_log
  where policy_features is not null
  group by trace_id, span_id
)
select
  c.service, c.policy_id, c.policy_version, c.policy_features as logged, p.logged_hash, p.spec, c.input_text,
  c.tools_offered
from calls c left join carried p on p.trace_id = c.trace_id and p.span_id = c.span_id
where c.policy_features is not null and c.kind = 'llm' and c.input_text is not null
order by c.start_ns desc, c.span_id
limit $most::bigint
