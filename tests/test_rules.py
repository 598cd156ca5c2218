"""Rules for people: what they say is what was measured, and they say how well they imitate."""

from __future__ import annotations

import numpy as np
import pytest

from optimizer.dataset import Floats, Ints, LoggedDataset
from optimizer.policy import Today
from optimizer.report import rule_lines
from optimizer.rules import Rules, distil, explain, words
from optimizer.runtime import DENSE, DIM, featurise_many

NAMES = ("dear", "middle", "cheap")


def prompts(n: int, seed: int) -> tuple[list[str], Floats]:
    """Prompts of 1 to 400 words, half of them with code, and their features."""
    rng = np.random.default_rng(seed)
    texts = [
        " ".join(rng.choice(["of", "some", "words", "whatever"], size)) + ("\n```python```" if code else "")
        for size, code in zip(rng.integers(1, 400, n), rng.random(n) < 0.5, strict=True)
    ]
    return texts, featurise_many([{"messages": text} for text in texts]).astype(np.float64)


def rule(texts: list[str]) -> Ints:
    """Code goes to the dear model, other long prompts to the middle one, the rest to the cheap one."""
    return np.array([0 if "```" in text else 1 if len(text.split()) > 150 else 2 for text in texts])


def judged(features: Floats, actions: Ints | None = None) -> LoggedDataset:
    n = len(features)
    return LoggedDataset(
        features=features,
        actions=np.arange(n) % 3 if actions is None else actions,
        quality=np.full(n, 0.5),
        cost_usd=np.full(n, 0.01),
        latency_s=np.ones(n),
        behaviour=np.full((n, 3), 1 / 3),
        groups=np.arange(n),
        time_ns=np.arange(n),
        action_names=NAMES,
        propensities_logged=True,
    )


def found(noise: float = 0.0) -> Rules:
    texts, features = prompts(1500, 0)
    new_texts, new = prompts(800, 1)
    chosen, does = rule(texts), rule(new_texts)
    rng = np.random.default_rng(2)
    chosen = np.where(rng.random(1500) < noise, rng.integers(0, 3, 1500), chosen)
    does = np.where(rng.random(800) < noise, rng.integers(0, 3, 800), does)
    return distil(features, chosen, judged(new), does)


def test_rules_find_the_rule_that_was_followed_and_say_it() -> None:
    rules = found()
    assert rules.fidelity > 0.97  # the threshold is rounded to two digits
    assert {one.action for one in rules.rules} == set(NAMES)
    dear = next(one for one in rules.rules if one.action == "dear")
    assert dear.share == pytest.approx(0.5, abs=0.06)  # three standard errors of 800 coins
    assert words(dear) in ("any code fences", "any brackets", "2 or more lines", "any words about code")


def test_shares_cover_everything_once_and_agreement_adds_up_to_the_fidelity() -> None:
    rules = found(noise=0.3)
    assert 2 <= len(rules.rules) <= 8
    assert all(len(one.conditions) <= 3 for one in rules.rules)
    assert sum(one.share for one in rules.rules) == pytest.approx(1.0)
    assert sum(one.share * one.agreement for one in rules.rules) == pytest.approx(rules.fidelity)
    assert [one.share for one in rules.rules] == sorted((one.share for one in rules.rules), reverse=True)


def test_fidelity_is_measured_on_decisions_that_the_tree_did_not_see() -> None:
    """A policy that is a coin: no tree can foretell its choice on new decisions, whatever it learned by heart."""
    _, features = prompts(600, 0)
    _, new = prompts(2000, 1)
    rng = np.random.default_rng(3)
    rules = distil(features, rng.integers(0, 2, 600), judged(new), rng.integers(0, 2, 2000))
    assert rules.fidelity == pytest.approx(0.5, abs=0.04)  # three and a half standard errors


def test_what_a_rule_says_holds_for_the_prompts_it_covers() -> None:
    texts, features = prompts(1000, 4)
    does = np.array([1 if len(text.split()) > 150 else 2 for text in texts])
    rules = distil(features, does, judged(features), does)
    long = next(one for one in rules.rules if one.action == "middle")
    assert rules.fidelity > 0.97  # the threshold is rounded to two digits
    assert long.conditions[0].startswith("more than ")
    limit, what = long.conditions[0].removeprefix("more than ").split(" ", 1)
    size = {"words": lambda t: len(t.split()), "characters": len, "conversation characters": len}
    count = size.get(what, len)
    said = np.array([count(text) > int(limit.replace(",", "")) for text in texts])
    assert ((rules.choices == 1) == said).mean() > 0.99  # features are kept to about three digits


def test_one_choice_for_all_is_one_rule_without_conditions() -> None:
    _, features = prompts(200, 0)
    same = np.full(200, 2)
    (only,) = distil(features, same, judged(features, np.repeat([0, 1], [150, 50])), same).rules
    assert (words(only), only.action, only.share, only.agreement) == ("always", "cheap", 1.0, 1.0)
    assert (only.today, only.today_share) == ("dear", 0.75)


@pytest.mark.parametrize("name", [name for name in DENSE if name not in ("attachments",)])
def test_every_named_feature_can_be_said(name: str) -> None:
    rng = np.random.default_rng(5)
    features = np.zeros((400, DIM))
    place = DENSE.index(name)
    features[:, place] = rng.random(400) if name.endswith("share") else np.log1p(rng.integers(0, 2000, 400))
    if name == "json_response":
        features[:, place] = rng.integers(0, 2, 400)
    does = (features[:, place] > features[:, place].mean()).astype(np.int64)
    rules = distil(features, does, judged(features), does)
    assert rules.fidelity > 0.95
    assert all(one.conditions and "_" not in words(one) for one in rules.rules)


def test_rules_without_decisions_to_test_them_on_are_empty() -> None:
    _, features = prompts(50, 0)
    rules = distil(features, np.zeros(50, dtype=np.int64), judged(features[:0]), np.zeros(0, dtype=np.int64))
    assert rules.rules == ()


def test_a_report_says_the_rules_and_how_well_they_fit() -> None:
    change = {"value": 0.02, "low": 0.01, "high": 0.03}
    said = {
        "rules": [
            {"conditions": ["no code fences", "at most 90 words"], "action": "cheap", "share": 0.7},
            {"conditions": ["any code fences"], "action": "dear", "share": 0.3},
        ],
        "fidelity": 0.93,
        "savings_usd_per_1k": {"value": 1.2, "low": 1.0, "high": 1.4},
        "quality_change": change,
    }
    for one in said["rules"]:  # type: ignore[attr-defined]
        one.update(today="dear", today_share=0.61, agreement=0.9)
    head, first, second = rule_lines({"points": [{"point": "answer", "rules": said}, {"point": "other"}]})
    assert head.startswith("at answer, in words (the policy chooses so in 93% of decisions; followed to the letter: ")
    assert "quality +2.0 points [+1.0 points, +3.0 points]" in head
    assert first == "  70%: no code fences and at most 90 words: cheap (today mostly dear, 61%)"
    assert second == "  30%: any code fences: dear (today mostly dear, 61%)"


def test_rules_as_a_policy_choose_what_they_say() -> None:
    data = judged(prompts(300, 0)[1])
    rules = explain(data, data, Today(), data.behaviour)
    policy = rules.policy(3)
    assert (policy.sum(axis=1) == 1).all()
    assert (policy.argmax(axis=1) == rules.choices).all()
