-- Steps that name the one they followed by a link between spans of one trace: both as the calls that the spans show.
-- parameters: none
-- columns: trace_id, span_id, after
-- order: trace_id, span_id, after
with linked as (
  select trace_id, span_id, links
  from span_copies
  where links is not null
  qualify row_number() over (partition by trace_id, span_id order by precedence desc) = 1
),
followed as (
  select trace_id, span_id, unnest(from_json(links, '[{"trace_id": "varchar", "span_id": "varchar"}]')) as link
  from linked
)
select distinct f.trace_id, own.call_id as span_id, before.call_id as after
from followed f
join span_roles own on own.trace_id = f.trace_id and own.span_id = f.span_id
join span_roles before on before.trace_id = f.trace_id and before.span_id = f.link.span_id
where f.link.trace_id = f.trace_id and own.call_id <> before.call_id
order by f.trace_id, own.call_id, before.call_id
