-- Rows know the day (UTC) whose commit brought them, and a file holds rows of one day: retention drops whole files.
-- NULL is before the first such day. The converter says the day, not the senders: a wrong clock makes no partition.

alter table span_log add column day date;
alter table content_log add column day date;
alter table event_log add column day date;
alter table score_log add column day date;
alter table settled_calls add column day date;
alter table span_roles add column day date;
alter table settled_traces add column day date;
alter table ingest_log add column day date;

alter table span_log set partitioned by (day);
alter table content_log set partitioned by (day);
alter table event_log set partitioned by (day);
alter table score_log set partitioned by (day);
alter table settled_calls set partitioned by (day);
alter table span_roles set partitioned by (day);
alter table settled_traces set partitioned by (day);
alter table ingest_log set partitioned by (day);

create or replace view spans as
with ranked as (
  select *, row_number() over (partition by trace_id, span_id order by (end_ns > 0) desc, batch desc, line desc) as place
  from span_log
)
select ranked.* exclude (place, batch, line, day), span_roles.role, span_roles.call_id
from ranked left join span_roles on span_roles.trace_id = ranked.trace_id and span_roles.span_id = ranked.span_id
where place = 1;

create or replace view events as
select * exclude (batch, line, place, day)
from (select *, row_number() over (partition by event_id order by batch) as place from event_log)
where place = 1;
