-- Which instrumentations told of model calls of a service, and whether one told of a moment only, the end of a stream.
-- parameters: none
-- columns: service, scope, moments
-- order: service, scope
select service, scope, bool_or(start_ns = end_ns and input_digest is not null) as moments
from span_log
where kind in ('llm', 'embedding')
group by service, scope
order by service, scope
