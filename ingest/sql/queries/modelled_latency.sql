-- Services whose spans say that their durations come from a model instead of a clock, and what they say.
-- parameters: none
-- columns: service, label
-- order: service
select service, any_value(json_extract_string(attributes, '$."retroute.sample.latency"')) as label
from span_log
where contains(attributes, 'retroute.sample.latency')
group by service
order by service
