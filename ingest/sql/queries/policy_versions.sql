-- Which policy decided first in each trace that a router's policy decided in, and in which arm of its roll-out.
-- parameters: none
-- columns: trace_id, policy_version, policy_arm
-- order: trace_id
select trace_id, arg_min(policy_version, start_ns) as policy_version, arg_min(policy_arm, start_ns) as policy_arm
from settled_calls
where policy_version is not null
group by trace_id
order by trace_id
