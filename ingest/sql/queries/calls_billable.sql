-- Calls that a provider may have billed: model calls, and whatever else carries tokens or a cost, less what the app
-- answered from a cache of its own. One without a start time comes too: nobody can say that it is outside the period.
-- parameters: since_ns, until_ns
-- columns: service, kind, provider, model_requested, model_returned, service_tier, start_ns, end_ns, status, attempt_of, input_tokens, cache_read_tokens, cache_write_tokens, cache_write_1h_tokens, input_audio_tokens, input_image_tokens, output_tokens, reasoning_tokens, output_audio_tokens, output_image_tokens, web_search_calls, code_interpreter_calls, file_search_calls, search_size, cost_usd, unpriced, reported_cost_usd
-- order: start_ns, trace_id, span_id
select service, kind, provider, model_requested, model_returned, service_tier, start_ns, end_ns, status, attempt_of,
  input_tokens, cache_read_tokens, cache_write_tokens, cache_write_1h_tokens, input_audio_tokens, input_image_tokens,
  output_tokens, reasoning_tokens, output_audio_tokens, output_image_tokens,
  web_search_calls, code_interpreter_calls, file_search_calls, search_size, cost_usd, unpriced, reported_cost_usd
from settled_calls
where (kind in ('llm', 'embedding') or cost_usd is not null or unpriced is not null)
  and cache_hit is not true
  and (start_ns is null
    or (($since_ns is null or start_ns >= $since_ns) and ($until_ns is null or start_ns < $until_ns)))
order by start_ns, trace_id, span_id
