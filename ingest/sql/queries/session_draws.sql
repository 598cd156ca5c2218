-- Traces with a decision that repeats the one draw of its session: what the router logs as policy.draw, by itself or as
-- LiteLLM passes it on.
-- parameters: none
-- columns: trace_id
-- order: trace_id
select distinct trace_id
from span_log
where policy_action is not null
  and coalesce(
    json_extract_string(attributes, '$."policy.draw"'),
    json_extract_string(attributes, '$."litellm.metadata.policy.draw"'),
    json_extract_string(attributes, '$."litellm.metadata.requester_metadata.policy.draw"')
  ) = 'session'
order by trace_id
