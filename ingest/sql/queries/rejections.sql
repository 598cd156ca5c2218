-- What could not be used of what arrived, by what was wrong with the first of each minute.
-- parameters: none
-- columns: problem, rejected, last_ns
-- order: rejected descending, problem
select problem, sum(rejected)::bigint as rejected, max(received_ns) as last_ns
from ingest_log
where rejected > 0
group by problem
order by rejected desc, problem
