-- When calls happened, by the hour of their start; hours without calls are left out.
-- parameters: service
-- columns: start_ns, calls
-- order: start_ns
select (start_ns // 3600000000000) * 3600000000000 as start_ns, count(*) as calls
from settled_calls
where $service is null or service = $service
group by 1
order by 1
