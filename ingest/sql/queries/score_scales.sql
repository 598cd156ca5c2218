-- What scores mean as last declared: see the migration that makes the table.
-- parameters: none
-- columns: version, name, low, high, invert, label, label_value
-- order: name, label
select version, name, low, high, invert, label, label_value
from score_scales
where version = (select max(version) from score_scales)
order by name nulls first, label nulls first
