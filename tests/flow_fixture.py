"""The flow of a made-up service of several agents, as verdicts.json holds it. Nothing here comes from a model."""

from __future__ import annotations

from dashboard_fixture import Json, number, refused, verdicts

AGENTS = ("plan", "search", "<b>code</b>", "check", "STOP")
UNTRIED = "only 37 effective episodes; below 100 no interval can be trusted"
FEW = "only 12 sessions with a score; below 30 no interval can be trusted"


def _route() -> list[Json]:
    today = [
        (1.0, {"plan": 0.94, "search": 0.06}),
        (1.0, {"search": 0.55, "<b>code</b>": 0.42, "check": 0.03}),
        (0.97, {"<b>code</b>": 0.71, "check": 0.21, "STOP": 0.08}),
        (0.89, {"check": 0.63, "search": 0.12, "<b>code</b>": 0.2, "STOP": 0.05}),
        (0.84, {"check": 0.1, "STOP": 0.9}),
    ]
    policy = [
        (1.0, {"plan": 0.35, "<b>code</b>": 0.65}),
        (1.0, {"<b>code</b>": 0.52, "check": 0.2, "STOP": 0.28}),
        (0.72, {"check": 0.31, "STOP": 0.69}),
        (0.22, {"check": 0.2, "STOP": 0.8}),
        (0.04, {"STOP": 1.0}),
    ]
    return [
        {"step": n + 1, "today_reach": was, "today": does, "policy_reach": will, "policy": would}
        for n, ((was, does), (will, would)) in enumerate(zip(today, policy, strict=True))
    ]


def _metric(name: str, definition: str, today: Json, policy: Json, change: Json) -> Json:
    return {"metric": name, "definition": definition, "today": today, "policy": policy, "change": change}


def _baseline(label: str, cost: float, quality: float, latency: float) -> Json:
    return {
        "label": label,
        "cost_usd_per_1k": number(cost, 0.08 * cost),
        "quality": number(quality, 0.021),
        "latency_s": number(latency, 0.4),
        "chosen": label == "fitted Q",
    }


def flow() -> Json:
    """The content of "orchestration" where all is known."""
    return {
        "episodes": 1840,
        "decisions": 8203,
        "outside_steps": {"tokens_share": 0.189, "cost_share": 0.121},
        "actions": list(AGENTS),
        "route": _route(),
        "stop_rule": [
            "after 1 step or more, if the last signal is above 0.8: stop",
            "after 3 steps, if the output did not change: stop",
            "else go on",
        ],
        "rules": ["if <steps> is 0: plan", "else: code"],
        "changed_routes": 0.63,
        "baselines": [
            _baseline("as logged", 11.9, 0.741, 8.2),
            _baseline("always stop after 2", 5.1, 0.69, 3.4),
            _baseline("always <i>code</i>", 9.4, 0.702, 6.6),
            _baseline("fitted Q", 6.3, 0.752, 4.3),
        ],
        "organisation": [
            _metric("steps", "Activations in a trace.", number(4.46, 0.06), number(2.94, 0.11), number(-1.52, 0.13)),
            _metric(
                "tokens", "Tokens of all calls.", number(5929.0, 210.0), number(3120.0, 260.0), number(-2809.0, 330.0)
            ),
            _metric(
                "cost_usd", "USD of all calls.", number(0.0119, 0.0006), number(0.0063, 0.0007), number(-0.0056, 0.001)
            ),
            _metric("density", "Pairs in a row.", number(0.342, 0.012), number(0.391, 0.03), number(0.049, 0.03)),
            _metric("cycles_2", "Cycles of two.", number(0.31, 0.03), refused(UNTRIED), refused(UNTRIED)),
            _metric("hub_share", "The busiest.", number(0.44, 0.01), number(0.52, 0.03), number(0.08, 0.03)),
            _metric(
                "oracle_stop_gap",
                "Best minus last.",
                number(0.071, 0.011),
                number(0.021, 0.02),
                number(-0.05, 0.022, kind="assumption"),
            ),
            _metric("mood", "Not known to the page.", number(1.0, 0.1), number(1.1, 0.1), number(0.1, 0.1)),
        ],
        "friction": {
            "reading": "association",
            "confidence": 0.95,
            "prompts": [
                _prompt("answer", "7", 1210, 1100, number(4.1, 0.3), number(0.755, 0.02), number(0.052, 0.035)),
                _prompt(
                    "<script>repair</script>", "3", 412, 380, number(7.2, 0.9), number(0.58, 0.05), number(-0.21, 0.06)
                ),
                _prompt("answer", None, 14, 12, refused(FEW), refused(FEW), refused(FEW)),
            ],
            "handoffs": [
                _handoff("plan", "search", 980, number(0.031, 0.01), number(2.2, 0.2), number(1.1, 0.05), 0.01),
                _handoff("search", "<b>code</b>", 911, number(0.112, 0.02), number(4.0, 0.3), number(2.4, 0.1), -0.06),
                _handoff("<b>code</b>", "check", 1303, number(0.02, 0.01), number(0.9, 0.1), number(0.4, 0.03), 0.04),
                _handoff("check", "<b>code</b>", 402, number(0.21, 0.04), number(4.4, 0.4), number(2.5, 0.2), -0.12),
                {
                    **_handoff("check", "search", 19, refused(FEW), refused(FEW), refused(FEW), 0.0),
                    **dict.fromkeys(("quality", "difference"), refused(FEW)),
                },
            ],
            "steps": [
                _total("<b>code</b>", 2810, 1611, 0.58, 0.55, 0.6, 0.09),
                _total("search", 1405, 1020, 0.27, 0.21, 0.24, 0.03),
                _total("plan", 1730, 1730, 0.11, 0.15, 0.12, 0.004),
                _total("check", 1702, 1380, 0.04, 0.09, None, 0.02),
            ],
        },
    }


def _prompt(name: str, version: str | None, traces: int, scored: int, cost: Json, quality: Json, apart: Json) -> Json:
    told = {
        "point": "solve",
        "prompt": name,
        "version": version,
        "calls": 2 * traces,
        "traces": traces,
        "scored": scored,
    }
    return {**told, "cost_usd_per_1k": cost, "quality": quality, "difference": apart}


def _handoff(source: str, target: str, count: int, failed: Json, cost: Json, seconds: Json, apart: float) -> Json:
    return {
        "from": source,
        "to": target,
        "count": count,
        "traces": count - 7,
        "failed": failed,
        "cost_usd_per_1k": cost,
        "seconds": seconds,
        "quality": number(0.72 + apart, 0.02),
        "quality_without": number(0.72, 0.02),
        "difference": number(apart, 0.03),
    }


def _total(
    agent: str, turns: int, traces: int, cost: float, seconds: float, tokens: float | None, failed: float
) -> Json:
    shares = {"cost_share": cost, "seconds_share": seconds, "tokens_share": tokens, "failed_share": failed}
    return {"agent": agent, "turns": turns, "traces": traces, **shares}


def silent() -> Json:
    """The same where nothing is suggested: what is so today, and reasons."""
    said = flow()
    no = refused(UNTRIED)
    for row in said["organisation"]:
        row |= {"policy": no, "change": no}
    for step in said["route"]:
        step |= {"policy": None, "policy_reach": None}
    return {
        **said,
        "stop_rule": [],
        "rules": [],
        "changed_routes": None,
        "friction": None,
        "outside_steps": {"tokens_share": None, "cost_share": None},
        "baselines": [{"label": "as logged", "cost_usd_per_1k": no, "quality": no}],
    }


def with_flows() -> Json:
    """The content of verdicts.json: alpha has a flow, delta one of which little can be told, the others none."""
    said = verdicts()
    said["services"]["alpha"]["orchestration"] = flow()
    said["services"]["delta"]["orchestration"] = silent()
    said["services"]["gamma"]["orchestration"] = None
    return said
