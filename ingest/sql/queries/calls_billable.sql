-- Calls that a provider may have billed: model calls, and whatever else carries tokens or a cost. One without a start
-- time comes too, since nobody can say that it is outside the period.
-- parameters: since_ns, until_ns
-- columns: service, kind, provider, model_requested, model_returned, start_ns, end_ns, status, attempts, input_tokens, cache_read_tokens, cache_write_tokens, output_tokens, cost_usd, unpriced, reported_cost_usd
-- order: start_ns, trace_id, span_id
select service, kind, provider, model_requested, model_returned, start_ns, end_ns, status, attempts,
  input_tokens, cache_read_tokens, cache_write_tokens, output_tokens, cost_usd, unpriced, reported_cost_usd
from settled_calls
where (kind in ('llm', 'embedding') or cost_usd is not null or unpriced is not null)
  and (start_ns is null
    or (($since_ns is null or start_ns >= $since_ns) and ($until_ns is null or start_ns < $until_ns)))
order by start_ns, trace_id, span_id
