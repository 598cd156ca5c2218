-- The messages of one call as JSON, and the tools that it was offered; see `trace_calls` for where they are.
-- parameters: content_trace_id, content_span_id
-- columns: input_text, output_text, tools
-- order: one row
select
  arg_max(input_text, batch) as input_text, arg_max(output_text, batch) as output_text, arg_max(tools, batch) as tools
from content_log
where trace_id = $content_trace_id::varchar and span_id = $content_span_id::varchar
