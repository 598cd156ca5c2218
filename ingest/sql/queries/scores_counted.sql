-- How many scores arrived, each once however often it was sent.
-- parameters: none
-- columns: scores
-- order: one row
select count(distinct hash(score_id)) as scores
from score_log
