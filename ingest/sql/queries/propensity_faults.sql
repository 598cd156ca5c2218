-- Logged probabilities of choices that cannot be: how many traces of each fault, and one of them. A night estimates what it
-- cannot use.
-- parameters: none
-- columns: service, fault, traces, trace_id
-- order: service, traces
with logged as (
  select
    service, trace_id, policy_action as action, policy_propensity as propensity,
    policy_candidates is not null or policy_probabilities is not null as listed,
    try_cast(try_cast(policy_candidates as json) as varchar[]) as candidates,
    try_cast(try_cast(policy_probabilities as json) as double[]) as probabilities
  from settled_calls
  where policy_propensity is not null or policy_probabilities is not null
), judged as (
  select service, trace_id, case
    when propensity is not null and not (propensity > 0 and propensity <= 1)
      then 'policy.propensity is not above 0 and at most 1'
    when listed and (candidates is null or probabilities is null) then 'candidates or probabilities are no lists'
    when len(candidates) <> len(probabilities) then 'there are not as many probabilities as candidates'
    when list_min(probabilities) < 0 then 'a probability is below 0'
    when not abs(list_sum(probabilities) - 1) <= 1e-3 then 'the probabilities do not sum to 1'
    when not list_contains(candidates, action) then 'the action is not among its candidates'
    when not probabilities[list_position(candidates, action)] > 0 then 'the action has probability 0'
    when abs(probabilities[list_position(candidates, action)] - propensity) > 1e-3
      then 'policy.propensity is not the probability of the action'
  end as fault
  from logged
)
select service, fault, count(distinct trace_id) as traces, min(trace_id) as trace_id
from judged
where fault is not null
group by service, fault
order by service, traces desc, fault
