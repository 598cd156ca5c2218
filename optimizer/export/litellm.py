"""A policy as files for a LiteLLM proxy: config.yaml, policy_router.py and the policy folder."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from pathlib import Path

from ingest.errors import UsageError
from optimizer.bundle import copy_policy, manifest_for, write_files
from optimizer.runtime import STOP

PROMOTED = (
    "id", "version", "action", "propensity", "arm", "reason", "draw", "revision", "shadow", "candidates",
    "probabilities", "features.spec", "features.hash", "requested_model",
)  # fmt: skip
"""policy.* attributes that LiteLLM copies onto its own call spans. The feature vector is too long for OTel baggage and
goes onto the request's server span only."""

_STAMP = "# retroute:sha256:"


def export(policy_folder: Path, out: Path, service: str) -> list[str]:
    """Write the bundle for `service` into `out`; returns notes for the user, usually none.

    A config.yaml that was edited since it was written is kept, and the new one goes beside it as config.new.yaml.
    UsageError naming the file if the policy lacks one or it was changed, or if the policy was trained for another
    service, or if it is an orchestrator.
    """
    manifest = manifest_for(policy_folder, service)
    actions: list[str] = manifest["actions"]
    if actions[-1] == STOP:
        raise UsageError(
            f"the policy of {service} chooses which agent acts next and when to stop; a proxy sees single calls only",
            hint="Export it for the app that runs the agents: --target agents.",
        )
    if service in actions:
        raise UsageError(
            f"the service {service} has the name of one of its models, which the proxy could not tell apart",
            hint="Rename the service (service.name, OTEL_SERVICE_NAME) and train again.",
        )
    text = _stamped(_config(service, actions, manifest["incumbent"]))
    config, notes = "config.yaml", []
    if not _replaceable(out / config, text):
        config = "config.new.yaml"
        notes = [f"{out / 'config.yaml'} was edited and stays; compare it with {config}"]
    copy_policy(policy_folder, manifest, out / "policy")
    write_files(
        out,
        {
            "policy_router.py": Path(__file__).with_name("litellm_router.py").read_bytes(),
            config: text.encode(),
        },
    )
    return notes


def _config(service: str, actions: Sequence[str], incumbent: str) -> str:
    """config.yaml without its stamp. JSON strings are YAML strings, so any model name is safe in it."""
    names = variables(actions)
    deployments = [(service, incumbent), *((action, action) for action in actions)]
    models = "".join(
        f"  - model_name: {json.dumps(name)}\n"
        "    litellm_params:\n"
        f"      model: {json.dumps('openai/' + action.partition('|')[0])}\n"
        f"      api_base: os.environ/{names[action]}_API_BASE\n"
        f"      api_key: os.environ/{names[action]}_API_KEY\n"
        for name, action in deployments
    )
    wanted = "".join(f"#   {names[action]}_API_BASE, {names[action]}_API_KEY\n" for action in actions)
    promoted = ["session_id", *(f"policy.{name}" for name in PROMOTED)]
    keys = "".join(f"      - requester_metadata.{name}\n" for name in promoted)
    fallbacks = "".join(
        f"    - {json.dumps(action)}: [{json.dumps(incumbent)}]\n" for action in actions if action != incumbent
    )
    strategies = (
        "# An action MODEL|STRATEGY sets the model; the application reads the strategy in the x-policy-action header.\n"
        if any("|" in action for action in actions)
        else ""
    )
    return (
        f"""# LiteLLM proxy that routes {service} by its policy. Start it with:
#   LITELLM_MASTER_KEY=sk-... OTEL_EXPORTER=otlp_http OTEL_ENDPOINT=http://127.0.0.1:4318/v1/traces \\
#   OTEL_SERVICE_NAME={service} litellm --config config.yaml
# Clients ask for the model {json.dumps(service)}; policy_router.py chooses among the others.
# Where each model is served (OpenAI-compatible address and key) comes from the environment:
{wanted}# or write another provider's name before the model (azure/, anthropic/, vertex_ai/ ...) and drop api_base.
{strategies}model_list:
  # The first serves the virtual model with the incumbent, in case there is no policy.
{models}litellm_settings:
  callbacks: [policy_router.handler, otel]
callback_settings:
  otel:
    baggage_metadata_keys:
{keys}"""
        + (f"router_settings:\n  fallbacks:\n{fallbacks}" if fallbacks else "")
        + """general_settings:
  master_key: os.environ/LITELLM_MASTER_KEY
"""
    )


def variables(actions: Sequence[str]) -> dict[str, str]:
    """Environment prefix per action. The same model has the same; two models never share one."""
    owners: dict[str, str] = {}
    result: dict[str, str] = {}
    for action in actions:
        model = action.partition("|")[0]
        name = re.sub(r"[^A-Z0-9]+", "_", model.upper()).strip("_") or "MODEL"
        name = f"MODEL_{name}" if name[0].isdigit() else name
        while owners.setdefault(name, model) != model:
            name += "_2"
        result[action] = name
    return result


def _stamped(text: str) -> str:
    return (
        f"{_STAMP}{hashlib.sha256(text.encode()).hexdigest()} - a config.yaml that was edited is never replaced\n{text}"
    )


def _replaceable(path: Path, text: str) -> bool:
    """Whether `path` is absent, ours and unedited, or already `text`."""
    if not path.is_file():
        return True
    present = path.read_text(encoding="utf-8")
    return present == text or present == _stamped(present.partition("\n")[2])
