-- Of the calls of one day that were to be priced, one part of several: their costs, and all that a price depends on.
-- parameters: day, since_ns, parts, part
-- columns: trace_id, span_id, cost_usd, input_usd, unpriced, price, kind, provider, model_requested, model_returned, service_tier, search_size, cache_hit, start_ns, input_tokens, output_tokens, cache_read_tokens, cache_write_tokens, cache_write_1h_tokens, input_audio_tokens, input_image_tokens, reasoning_tokens, output_audio_tokens, output_image_tokens, web_search_calls, code_interpreter_calls, file_search_calls
-- order: trace_id, span_id
select
  trace_id, span_id, cost_usd, input_usd, unpriced, price, kind, provider, model_requested, model_returned, service_tier, search_size,
  cache_hit, start_ns, input_tokens, output_tokens, cache_read_tokens, cache_write_tokens, cache_write_1h_tokens,
  input_audio_tokens, input_image_tokens, reasoning_tokens, output_audio_tokens, output_image_tokens, web_search_calls,
  code_interpreter_calls, file_search_calls
from settled_calls
where (cost_usd is not null or unpriced is not null) and unpriced is distinct from 'failed without usage'
  and day is not distinct from $day::date
  and ($since_ns::bigint is null or start_ns >= $since_ns::bigint)
  and hash(trace_id) % $parts::bigint = $part::bigint
order by trace_id, span_id
