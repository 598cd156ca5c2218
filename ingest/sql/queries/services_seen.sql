-- The services that made calls, with the minutes in which their first and last call started: quick, for every page.
-- parameters: none
-- columns: service, calls, first_ns, last_ns
-- order: service
select service, sum(calls)::bigint as calls, min(minute_ns) as first_ns, max(minute_ns) as last_ns
from calls_by_minute
group by service
having sum(calls) > 0
order by service
