"""A policy that orchestrates agents as files for the app that runs them: the policy, its helper and an example."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ingest.errors import UsageError
from optimizer.agents import steps
from optimizer.bundle import copy_policy, manifest_for, write_files
from optimizer.runtime import STOP


def export(policy_folder: Path, out: Path, service: str) -> list[str]:
    """Write the bundle for `service` into `out`; returns notes for the user, usually none.

    An example.py that is there stays: it may be the app by now. UsageError naming the file if the policy lacks one or
    it was changed, or if the policy was trained for another service or decides single calls.
    """
    manifest = manifest_for(policy_folder, service)
    actions: list[str] = manifest["actions"]
    if actions[-1] != STOP:
        raise UsageError(
            f"the policy of {service} chooses a model for single calls, not which agent acts next",
            hint="Export it for a proxy: --target litellm.",
        )
    copy_policy(policy_folder, manifest, out / "policy")
    write_files(out, {"policy_agents.py": Path(steps.__file__).read_bytes()})
    if (out / "example.py").exists():
        return [f"{out / 'example.py'} was there and stays"]
    write_files(out, {"example.py": _example(service, actions[:-1]).encode()})
    return []


def _example(service: str, agents: Sequence[str]) -> str:
    table = "".join(f'    {name!r}: lambda task: f"{{task}} ...",\n' for name in agents)
    return _EXAMPLE.replace("SERVICE", ascii(service)[1:-1].replace('"', "'")).replace("    AGENTS\n", table)


_EXAMPLE = '''"""Runs the agents of SERVICE by the policy in the folder `policy`. Needs numpy and opentelemetry-api.

Replace the functions by your agents, and set up an OpenTelemetry exporter to the collector: each choice is then a span.
With LangGraph take `policy_agents.Graph` instead of the loop. The file policy/KILL leaves every step to the script.
"""

from pathlib import Path

from policy_agents import STOP, Orchestrator, load

AGENTS = {
    AGENTS
}


def answer(task: str) -> str:
    episode = Orchestrator(ROUTER)
    context = {"messages": [{"role": "user", "content": task}], "budget": {"cost_usd": 0.50, "seconds": 120}}
    output = ""
    while (decision := episode.next(context, AGENTS)).action != STOP:
        output = AGENTS[decision.action](task)
        episode.done(output=output, cost_usd=0.01, tokens=500)  # and signal=..., where a check gave one
        print(decision.action, decision.propensity, decision.reason)
    print(STOP, decision.propensity, decision.reason)
    return output


ROUTER = load(Path(__file__).parent / "policy")

if __name__ == "__main__":
    answer("Which orders of May are unpaid?")
'''
