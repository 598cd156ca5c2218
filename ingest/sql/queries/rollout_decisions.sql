-- The first decision of a policy's version in each trace since a time, as its router logged it: by itself, or as LiteLLM
-- passes it on. `revision` is NULL where an older runtime decided, `shadow` where the policy's own choice was taken;
-- `arms` counts the distinct arms of the trace's decisions.
-- parameters: policy_id, version, since_ns
-- columns: trace_id, start_ns, arm, reason, action, revision, shadow, arms
-- order: trace_id
with carried as (
  select
    trace_id, span_id, start_ns, policy_arm, policy_reason, policy_action,
    try_cast(coalesce(
      json_extract_string(attributes, '$."policy.revision"'),
      json_extract_string(attributes, '$."litellm.metadata.policy.revision"'),
      json_extract_string(attributes, '$."litellm.metadata.requester_metadata.policy.revision"')
    ) as double) as revision,
    coalesce(
      json_extract_string(attributes, '$."policy.shadow"'),
      json_extract_string(attributes, '$."litellm.metadata.policy.shadow"'),
      json_extract_string(attributes, '$."litellm.metadata.requester_metadata.policy.shadow"')
    ) as shadow
  from span_copies
  where policy_id = $policy_id::varchar and policy_version = $version::varchar and start_ns >= $since_ns::bigint
    and policy_action is not null
  qualify row_number() over (partition by trace_id, span_id order by precedence desc) = 1
)
select
  trace_id,
  min(start_ns) as start_ns,
  arg_min(policy_arm, start_ns) as arm,
  arg_min(policy_reason, start_ns) as reason,
  arg_min(policy_action, start_ns) as action,
  arg_min(revision, start_ns)::bigint as revision,
  arg_min(shadow, start_ns) as shadow,
  count(distinct policy_arm) as arms
from carried
group by trace_id
order by trace_id
