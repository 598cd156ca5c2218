-- Keys of the traces that were settled, as `known_traces` has them.
-- parameters: none
-- columns: key
-- order: key
select md5_number_upper(trace_id) as key
from settled_traces
order by key
