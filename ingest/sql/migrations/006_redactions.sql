-- What the privacy policy marked in what arrived: a JSON object, kind -> number of marks; NULL: nothing.
alter table ingest_log add column redacted varchar;
