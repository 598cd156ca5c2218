-- What the calls of some traces gave (answers of models and agents, results of tools), and the first prompt of each trace.
-- parameters: trace_ids
-- columns: trace_id, span_id, input_text, output_text
-- order: trace_id, start_ns, span_id
with told as (
  select
    trace_id, span_id, start_ns, input_text, case when kind <> 'chain' then output_text end as output_text,
    row_number() over (
      partition by trace_id
      order by input_text is null, start_ns, parent_call_id is not null, kind in ('llm', 'embedding'), span_id
    ) as place
  from calls
  where trace_id in (select unnest($trace_ids::varchar[]))
    and kind in ('llm', 'tool', 'agent', 'retrieval', 'chain')
)
select trace_id, span_id, case when place = 1 then input_text end as input_text, output_text
from told
where output_text is not null or (place = 1 and input_text is not null)
order by trace_id, start_ns, span_id
