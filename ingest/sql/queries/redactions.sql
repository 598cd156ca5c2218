-- How much was redacted of what arrived, by kind and by the minute of its receipt. Never what.
-- parameters: none
-- columns: received_ns, kind, marks
-- order: received_ns, kind
with kinds as (
  select received_ns, redacted, unnest(json_keys(redacted)) as kind from ingest_log where redacted is not null
)
select received_ns, kind, sum(cast(redacted ->> kind as bigint))::bigint as marks
from kinds
group by received_ns, kind
order by received_ns, kind
