-- When calls happened, by their start in steps of `step_ns`; steps without calls are left out.
-- parameters: service, since_ns, until_ns, step_ns
-- columns: start_ns, calls
-- order: start_ns
select minute_ns - minute_ns % $step_ns::bigint as start_ns, sum(calls)::bigint as calls
from calls_by_minute
where ($service::varchar is null or service = $service::varchar)
  and ($since_ns::bigint is null or minute_ns >= $since_ns::bigint)
  and ($until_ns::bigint is null or minute_ns < $until_ns::bigint)
group by 1
having sum(calls) > 0
order by 1
