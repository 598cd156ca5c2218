-- The days whose commits brought calls that were to be priced, and how many; NULL is before days were noted.
-- parameters: since_ns
-- columns: day, calls
-- order: day
select day, count(*) as calls
from settled_calls
where (cost_usd is not null or unpriced is not null) and unpriced is distinct from 'failed without usage'
  and ($since_ns::bigint is null or start_ns >= $since_ns::bigint)
group by day
order by day
