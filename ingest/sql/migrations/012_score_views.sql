-- Scores for who asks for few of them, and for who counts all: what a score is worth stands in a view of its own, and
-- only ids that came more than once are sorted for the copy that counts (0.15 s instead of 0.48 s of 500,000 scores).

-- Every row of score_log with its value on [0, 1] by the newest scales (NULL: none): see the migration score_scales.
create view score_versions as
with current_scales as (
  select * from score_scales where version = (select max(version) from score_scales)
),
ranges as (select name, low, high, invert from current_scales where name is not null and label is null),
labels as (select name, label, label_value from current_scales where label is not null),
labelled as (select distinct name from labels),
words as (
  select * from (values ('true', 1.0), ('pass', 1.0), ('passed', 1.0), ('false', 0.0), ('fail', 0.0), ('failed', 0.0))
    as w(label, label_value)
)
select
  s.score_id, s.trace_id, s.span_id, s.session_id, s.response_id, s.name, s.value,
  case
    when l.label_value is not null then l.label_value
    when g.name is not null and s.value is not null then
      case
        when s.value between g.low and g.high and g.invert then 1 - (s.value - g.low) / (g.high - g.low)
        when s.value between g.low and g.high then (s.value - g.low) / (g.high - g.low)
      end
    when g.name is not null and k.name is not null then null
    when s.value between 0 and 1 and g.name is null then s.value
    else w.label_value
  end as value01,
  s.label, s.explanation, s.source, s.time_ns, s.probability, s.batch, s.line
from score_log s
left join ranges g on g.name = s.name
left join labels l on l.name = s.name and l.label = lower(s.label)
left join labelled k on k.name = s.name
left join words w on w.label = lower(s.label);

-- Of several copies of a score the latest by its own time counts, of those with one time the one received last.
create view latest_scores as
with repeated as (
  select hash(score_id) as id from score_log group by id having count(*) > 1
)
select * exclude (batch, line) from score_versions where hash(score_id) not in (select id from repeated)
union all
(
  select * exclude (batch, line) from score_versions where hash(score_id) in (select id from repeated)
  qualify row_number() over (
    partition by score_id, name, source, trace_id, span_id, session_id, response_id
    order by time_ns desc, batch desc, line desc
  ) = 1
);

create or replace view scores as
with responses as (
  select response_id, any_value(trace_id) as trace_id, any_value(span_id) as span_id
  from settled_calls where response_id is not null group by response_id having count(*) = 1
),
owners as (
  select span_id, any_value(trace_id) as trace_id
  from span_roles
  where span_id in (select span_id from score_log where trace_id is null and span_id is not null)
  group by span_id having count(distinct trace_id) = 1
)
select
  s.score_id, coalesce(s.trace_id, o.trace_id, r.trace_id) as trace_id,
  case when s.trace_id is null then coalesce(s.span_id, r.span_id) else s.span_id end as span_id,
  s.session_id, s.response_id, s.name, s.value, s.value01, s.label, s.explanation, s.source, s.time_ns, s.probability
from latest_scores s
left join owners o on s.trace_id is null and o.span_id = s.span_id
left join responses r on r.response_id = s.response_id;
