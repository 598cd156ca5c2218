-- The services that made calls, and when their first and last call started.
-- parameters: none
-- columns: service, calls, first_ns, last_ns
-- order: service
select service, count(*) as calls, min(start_ns) as first_ns, max(start_ns) as last_ns
from settled_calls
group by service
order by service
