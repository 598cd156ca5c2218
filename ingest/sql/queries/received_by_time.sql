-- What arrived, by its receipt in steps of `step_ns`. `rejected` counts the spans and records that could not be used,
-- `problem` says what was wrong with one of them.
-- parameters: since_ns, until_ns, step_ns
-- columns: received_ns, requests, spans, rejected, problem
-- order: received_ns
select
  received_ns - received_ns % $step_ns::bigint as received_ns, sum(requests)::bigint as requests,
  sum(spans)::bigint as spans, sum(rejected)::bigint as rejected, max(problem) as problem
from ingest_log
where requests > 0
  and ($since_ns::bigint is null or received_ns >= $since_ns::bigint)
  and ($until_ns::bigint is null or received_ns < $until_ns::bigint)
group by 1
order by 1
