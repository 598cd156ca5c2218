-- How many traces each model was used in, alone or as "several models" (NULL: none was called).
-- parameters: service, since_ns, until_ns
-- columns: service, model, traces
-- order: traces descending, service, model
select
  service,
  json_extract_string(case when contains(models, '","') then '["several models"]' else models end, '$[0]') as model,
  sum(traces)::bigint as traces
from (
  select service, models, count(*) as traces
  from settled_traces
  where ($service::varchar is null or service = $service::varchar)
    and ($since_ns::bigint is null or start_ns >= $since_ns::bigint)
    and ($until_ns::bigint is null or start_ns < $until_ns::bigint)
  group by service, models
)
group by service, model
order by traces desc, service, model
