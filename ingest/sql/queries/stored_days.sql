-- The days whose rows the lake holds (NULL: before days were noted), and the converter's commits they belong to.
-- parameters: none
-- columns: day, first_batch, last_batch
-- order: day
select day, min(batch) as first_batch, max(batch) as last_batch
from (select day, batch from ingest_log union all select day, batch from settled_traces)
group by day
order by day nulls first
