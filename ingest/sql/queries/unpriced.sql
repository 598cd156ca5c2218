-- Calls without a cost, by the reason.
-- parameters: none
-- columns: service, model, reason, calls
-- order: calls descending, service, model, reason
select service, coalesce(model_returned, model_requested) as model, unpriced as reason, count(*) as calls
from settled_calls
where unpriced is not null
group by all
order by calls desc, service, model, reason
