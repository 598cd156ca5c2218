-- Calls that another model answered than the one that a policy chose: what a gateway fell back to. An action names a model
-- with whatever follows (a date; a strategy after "|"), of several that fit the longest. Only of services in which actions
-- name models; of several attempts the last, which answered.
-- parameters: none
-- columns: service, action, answered_by, calls, routed, of_service
-- order: service, action, calls descending, answered_by
with routed as (
  select
    service, policy_action as action, coalesce(model_returned, model_requested) as answered_by,
    lower(regexp_extract(split_part(policy_action, '|', 1), '[^/]*$')) as chosen,
    lower(regexp_extract(coalesce(model_returned, model_requested), '[^/]*$')) as answering, count(*) as calls
  from settled_calls
  where policy_action is not null and kind in ('llm', 'embedding') and attempt_of is null
    and status is distinct from 'error' and coalesce(model_returned, model_requested) is not null
  group by service, policy_action, answered_by
),
named as (
  select r.service, r.answering, max_by(a.chosen, length(a.chosen)) as chosen
  from (select distinct service, answering from routed) r
  join (select distinct service, chosen from routed) a
    on a.service is not distinct from r.service and regexp_matches(substr(r.answering, length(a.chosen) + 1), '^($|[-@:])')
    and starts_with(r.answering, a.chosen)
  group by r.service, r.answering
),
told as (
  select r.*, n.chosen is not null and n.chosen = r.chosen as as_chosen
  from routed r left join named n on n.service is not distinct from r.service and n.answering = r.answering
),
counted as (
  select
    *, sum(calls) over (partition by service, action) as routed, sum(calls) over (partition by service) as of_service,
    bool_or(as_chosen) over (partition by service) as names_models
  from told
)
select service, action, answered_by, calls, routed::bigint as routed, of_service::bigint as of_service
from counted
where names_models and not as_chosen
order by service, action, calls desc, answered_by
