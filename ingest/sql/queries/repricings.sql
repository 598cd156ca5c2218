-- What orders to price calls again did; `request` picks one. USD are sums over the calls that have a cost.
-- parameters: request
-- columns: request, at_ns, since_ns, price_list, calls, changed, priced, unpriced, usd_before, usd_after
-- order: at_ns, request
select request, at_ns, since_ns, price_list, calls, changed, priced, unpriced, usd_before, usd_after
from repricings
where $request::varchar is null or request = $request::varchar
order by at_ns, request
