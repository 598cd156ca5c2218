-- How many scores were given within some time, and when the newest `most` of them begin; 0: they are not more.
-- parameters: since_ns, until_ns, most
-- columns: scores, from_ns
-- order: one row
with given as (
  select time_ns from score_log
  where ($since_ns::bigint is null or time_ns >= $since_ns::bigint)
    and ($until_ns::bigint is null or time_ns < $until_ns::bigint)
)
select
  count(*) as scores,
  coalesce((select time_ns from given order by time_ns desc limit 1 offset $most::bigint), 0) as from_ns
from given
