-- Where a judge and somebody else scored the same trace or the same step of it: by both names and by tenths of the judge's
-- value, sums of both values (j: the judge's, o: the other's) and how often both, or one, gave half or more. Of several
-- scores of one name the newest counts. A score is a judge's if its source is one of `judges`, or its name one of
-- `judge_names` and its source none of `others`; else it is another's, if its source is one of `others` or its name one
-- of `quality_names`. Sources in small letters, with _ for a blank or a hyphen.
-- parameters: service, since_ns, until_ns, judges, others, judge_names, quality_names
-- columns: other_name, judge_name, bin, pairs, j, o, jj, oo, jo, both_pass, judge_pass, other_pass
-- order: other_name, judge_name, bin
with told as (
  select
    trace_id, span_id, name, value01, time_ns,
    replace(replace(lower(source), ' ', '_'), '-', '_') as source
  from scores
  where value01 is not null and trace_id is not null
),
sided as (
  select *,
    coalesce(list_contains($judges::varchar[], source), false)
      or (coalesce(list_contains($judge_names::varchar[], name), false)
        and not coalesce(list_contains($others::varchar[], source), false)) as by_judge,
    coalesce(list_contains($others::varchar[], source), false)
      or coalesce(list_contains($quality_names::varchar[], name), false) as by_other
  from told
),
newest as (
  select trace_id, span_id, name, by_judge, arg_max(value01, time_ns) as value
  from sided
  where by_judge or by_other
  group by trace_id, span_id, name, by_judge
),
paired as (
  select o.trace_id, o.name as other_name, j.name as judge_name, o.value as o, j.value as j
  from newest o join newest j on j.trace_id = o.trace_id and j.span_id is not distinct from o.span_id
  where j.by_judge and not o.by_judge
),
within as (
  select p.* from paired p left join settled_traces t on t.trace_id = p.trace_id
  where ($service::varchar is null or t.service = $service::varchar)
    and ($since_ns::bigint is null or t.start_ns >= $since_ns::bigint)
    and ($until_ns::bigint is null or t.start_ns < $until_ns::bigint)
)
select
  other_name, judge_name, least(floor(j * 10), 9)::bigint as bin, count(*) as pairs, sum(j) as j, sum(o) as o,
  sum(j * j) as jj, sum(o * o) as oo, sum(j * o) as jo, count(*) filter (where j >= 0.5 and o >= 0.5) as both_pass,
  count(*) filter (where j >= 0.5) as judge_pass, count(*) filter (where o >= 0.5) as other_pass
from within
group by other_name, judge_name, bin
order by other_name, judge_name, bin
