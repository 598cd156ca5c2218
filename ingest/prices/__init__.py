"""What models cost: dated price lists, the names under which they list a model, and tokens times prices.

`data/history.jsonl.gz` holds the price fields of litellm's list (https://github.com/BerriAI/litellm, MIT licence) as it
was in about one release a month, as differences; `build_history` is the script that made it. Facts only: numbers, with
the release and the date in which they were seen.
"""
