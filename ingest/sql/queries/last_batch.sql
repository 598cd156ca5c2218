-- The newest commit of the converter, and where the next read of the WAL starts (NULL: at its beginning).
-- parameters: none
-- columns: batch, position
-- order: one row
select coalesce(max(batch), 0) as batch, arg_max(position, batch) as position
from ingest_log
