-- What price lists say: one row per model and list that changed it. A price holds from `valid_from` until the model's next
-- row; NULL prices: the list has none, `fields` NULL: it dropped the model, whose last price goes on. USD per million tokens;
-- `fields` is the list's whole entry as JSON, in USD per token; `day` is when the row came into the lake. What [[prices]] of
-- retroute.toml says is not here.
create table prices (
  model varchar, provider varchar, valid_from varchar, list varchar,
  input double, output double, cache_read double, cache_write double, fields varchar,
  day date
);
