-- Of some models, which lists the table `prices` has rows of.
-- parameters: models
-- columns: model, list
-- order: model, list
select model, list
from prices
where model in (select unnest($models::varchar[]))
order by model, list
