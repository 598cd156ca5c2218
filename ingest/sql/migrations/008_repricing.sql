-- When settled calls were priced again, why their costs changed, and what that came to. `request` is one order to do so,
-- carried out once; `at_ns` when; `since_ns` from which start on, NULL: all; `price_list` the newest list then. USD.
create table repricings (
  request varchar, at_ns bigint, since_ns bigint, price_list varchar, calls bigint, changed bigint, priced bigint,
  unpriced bigint, usd_before double, usd_after double, day date
);

-- Model calls without token counts, and how many tokens their messages may have: by the characters a token had in calls
-- of the same model that have both. Estimates, for no cost and no saving. NULL: fewer than 5 such calls, or no text.
-- Output is what can be read of the answer, without reasoning. `calls_learned_from` counts those calls.
create view token_estimates as
with every_call as (
  select
    c.trace_id, c.span_id, c.service, c.status, c.start_ns, coalesce(c.model_returned, c.model_requested) as model,
    c.input_tokens, c.output_tokens - coalesce(c.reasoning_tokens, 0) as answer_tokens,
    coalesce(c.content_trace_id, c.trace_id) as content_trace_id, c.content_span_id,
    coalesce(c.input_audio_tokens, 0) + coalesce(c.input_image_tokens, 0) + coalesce(c.output_audio_tokens, 0)
      + coalesce(c.output_image_tokens, 0) = 0 as only_text
  from settled_calls c
  where c.kind in ('llm', 'embedding') and c.cache_hit is not true
),
model_calls as (  -- of models with a call that has no counts
  select * from every_call
  where (input_tokens is null and answer_tokens is null)
    or model in (select model from every_call where input_tokens is null and answer_tokens is null)
),
told as (
  select s.trace_id, s.span_id, max(s.input_chars) as input_chars, max(s.output_chars) as output_chars
  from span_log s semi join model_calls m on m.content_trace_id = s.trace_id and m.content_span_id = s.span_id
  group by s.trace_id, s.span_id
),
sized as (
  select m.*, nullif(t.input_chars, 0) as input_chars, nullif(t.output_chars, 0) as output_chars
  from model_calls m left join told t on t.trace_id = m.content_trace_id and t.span_id = m.content_span_id
),
texts as (  -- of calls whose texts came as events of their own
  select
    c.trace_id, c.span_id, max(length(c.input_text)) as input_chars, max(length(c.output_text)) as output_chars
  from content_log c
  semi join (select * from sized where input_chars is null and output_chars is null) s
    on s.content_trace_id = c.trace_id and s.content_span_id = c.span_id
  group by c.trace_id, c.span_id
),
whole as (
  select s.* replace (
    coalesce(s.input_chars, t.input_chars) as input_chars, coalesce(s.output_chars, t.output_chars) as output_chars
  )
  from sized s left join texts t on t.trace_id = s.content_trace_id and t.span_id = s.content_span_id
),
habits as (
  select
    model,
    count(*) filter (where input_tokens > 0 and input_chars > 0) as inputs,
    count(*) filter (where answer_tokens > 0 and output_chars > 0) as outputs,
    sum(input_chars) filter (where input_tokens > 0) / sum(input_tokens) filter (where input_chars > 0)
      as chars_per_input_token,
    sum(output_chars) filter (where answer_tokens > 0) / sum(answer_tokens) filter (where output_chars > 0)
      as chars_per_output_token
  from whole where only_text group by model
)
select
  w.trace_id, w.span_id, w.service, w.model, w.status, w.start_ns,
  case when h.inputs >= 5 then round(w.input_chars / h.chars_per_input_token)::bigint end as estimated_input_tokens,
  case when h.outputs >= 5 then round(w.output_chars / h.chars_per_output_token)::bigint end as estimated_output_tokens,
  h.chars_per_input_token, h.chars_per_output_token, greatest(h.inputs, h.outputs) as calls_learned_from
from whole w left join habits h on h.model = w.model
where w.input_tokens is null and w.answer_tokens is null;
