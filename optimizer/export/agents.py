"""A policy as files for the app that it acts in: the policy, its helper, adapters for frameworks and an example."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from optimizer import agents
from optimizer.bundle import copy_policy, manifest_for, write_files
from optimizer.runtime import STOP

HELPER = "steps.py"
FOR_CALLS, FOR_AGENTS = ("openai_agents", "pydantic_ai", "openfeature"), ("autogen",)
"""Adapters for policies that choose a model for a call, and for those that choose which agent acts next."""


def export(policy_folder: Path, out: Path, service: str) -> list[str]:
    """Write the bundle for `service` into `out`; returns notes for the user, usually none.

    An example.py that is there stays: it may be the app by now. UsageError naming the file if the policy lacks one or
    it was changed, or if the policy was trained for another service.
    """
    manifest = manifest_for(policy_folder, service)
    actions: list[str] = manifest["actions"]
    steps = actions[-1] == STOP
    copy_policy(policy_folder, manifest, out / "policy")
    source = Path(str(agents.__file__)).parent
    adapters = {f"policy_{name}.py": f"{name}.py" for name in (FOR_AGENTS if steps else FOR_CALLS)}
    files = {name: (source / own).read_bytes() for name, own in {"policy_agents.py": HELPER, **adapters}.items()}
    write_files(out, files)
    if (out / "example.py").exists():
        return [f"{out / 'example.py'} was there and stays"]
    write_files(out, {"example.py": (_example(service, actions[:-1]) if steps else _call(service)).encode()})
    return []


def _example(service: str, agents: Sequence[str]) -> str:
    table = "".join(f'    {name!r}: lambda task: f"{{task}} ...",\n' for name in agents)
    return _named(_EXAMPLE, service).replace("    AGENTS\n", table)


def _call(service: str) -> str:
    return _named(_CALL, service)


def _named(example: str, service: str) -> str:
    return example.replace("SERVICE", ascii(service)[1:-1].replace('"', "'"))


_EXAMPLE = '''"""Runs the agents of SERVICE by the policy in the folder `policy`. Needs numpy and opentelemetry-api.

Replace the functions by your agents, and set up an OpenTelemetry exporter to the collector: each choice is then a span.
With LangGraph take `policy_agents.Graph` instead of the loop, with AutoGen `policy_autogen.PolicyChat`. The file
policy/KILL leaves every step to the script.
"""

from pathlib import Path

from policy_agents import STOP, Orchestrator, Policy

AGENTS = {
    AGENTS
}


def answer(task: str) -> str:
    episode = Orchestrator(POLICY.router)
    context = {"messages": [{"role": "user", "content": task}], "budget": {"cost_usd": 0.50, "seconds": 120}}
    output = ""
    while (decision := episode.next(context, AGENTS)).action != STOP:
        output = AGENTS[decision.action](task)
        episode.done(output=output, cost_usd=0.01, tokens=500)  # and signal=..., where a check gave one
        print(decision.action, decision.propensity, decision.reason)
    print(STOP, decision.propensity, decision.reason)
    return output


POLICY = Policy(Path(__file__).parent / "policy")

if __name__ == "__main__":
    answer("Which orders of May are unpaid?")
'''

_CALL = '''"""Lets the policy in the folder `policy` choose the model of each call of SERVICE.

It needs numpy and opentelemetry-api. Call that model instead of printing it, and set up an OpenTelemetry exporter to
the collector: each choice is then a span, which has to be of the same trace as the call. With the OpenAI Agents SDK,
pydantic-ai or OpenFeature see policy_openai_agents.py, policy_pydantic_ai.py and policy_openfeature.py. The file
policy/KILL leaves every call to the incumbent.
"""

from pathlib import Path

from policy_agents import Policy

POLICY = Policy(Path(__file__).parent / "policy")

if __name__ == "__main__":
    choice = POLICY.decide({"messages": [{"role": "user", "content": "Which orders of May are unpaid?"}]})
    print(choice.action, choice.propensity, choice.reason)
'''
