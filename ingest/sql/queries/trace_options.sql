-- What traces can be filtered by: the models, agents and tools of calls, those of most calls first.
-- parameters: service, since_ns, until_ns
-- columns: kind, name, calls
-- order: kind, calls descending, name
with counted as (
  select model, agent, tool, sum(calls) as calls
  from calls_by_minute
  where ($service::varchar is null or service = $service::varchar)
    and ($since_ns::bigint is null or minute_ns + grain_ns > $since_ns::bigint)
    and ($until_ns::bigint is null or minute_ns < $until_ns::bigint)
  group by model, agent, tool
)
select kind, name, sum(calls)::bigint as calls
from (unpivot counted on model, agent, tool into name kind value name)
group by kind, name
having sum(calls) > 0
order by kind, calls desc, name
