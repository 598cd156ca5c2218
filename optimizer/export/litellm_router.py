"""Routes a LiteLLM proxy's requests by the policy in the folder `policy` beside this file.

A request for the policy's virtual model gets one of its actions as model; every other request passes untouched. What
was decided goes onto the request's spans as policy.* attributes and into the response's x-policy-* headers. Written by
`retroute export --target litellm`; needs litellm and numpy, nothing of retroute.

Stop it at once: create the file policy/KILL, or set RETROUTE_KILL=1. All requests then go to the incumbent.
"""

from __future__ import annotations

import importlib.util
import logging
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from litellm.integrations.custom_logger import CustomLogger  # noqa: TID253 - this file runs inside the proxy

FOLDER = Path(__file__).resolve().parent / "policy"
CHECK_S = 1.0  # between two looks at the policy's files
log = logging.getLogger("retroute.policy_router")


class PolicyRouter(CustomLogger):
    """LiteLLM's hooks. Whatever fails, the request goes on under the virtual model, which the incumbent serves."""

    def __init__(self, folder: Path = FOLDER) -> None:
        super().__init__()
        self.folder = folder
        self.runtime: Any = None
        self.router: Any = None  # the last good policy
        self.seen: object = None  # state of its files, good or not
        self.checked_s = float("-inf")
        self.reload()

    def reload(self) -> None:
        """Load the policy if its files changed since the last look; on any failure keep the last good one."""
        now = time.monotonic()
        if now - self.checked_s < CHECK_S:
            return
        self.checked_s = now
        seen = [state_of(self.folder / name) for name in ("manifest.json", "weights.npz", "runtime.py")]
        if seen == self.seen:
            return
        self.seen = seen
        try:
            if self.runtime is None:
                self.runtime = load_runtime(self.folder / "runtime.py")
            router = self.runtime.Router.load(self.folder)
            if getattr(router.model, "steps", False):  # an older runtime knows none
                raise ValueError("the policy chooses which agent acts next; a proxy sees single calls only")
            self.router = router
            log.info("policy %s version %s loaded", self.router.policy_id, self.router.version)
        except Exception as error:
            if self.router is None:
                log.warning("no policy, the incumbent answers: %s", error)
            else:
                log.warning("policy not loaded, version %s stays: %s", self.router.version, error)

    async def async_pre_call_hook(
        self, user_api_key_dict: Any, cache: Any, data: dict[str, Any], call_type: str
    ) -> dict[str, Any]:
        """Decide once per client request, before LiteLLM picks a deployment."""
        try:
            self.route(user_api_key_dict, data)
        except Exception:
            log.exception("request not routed")
        return data

    def route(self, user_api_key_dict: Any, data: dict[str, Any]) -> None:
        """Strip what a client claims about policies, then choose data["model"] if it is the virtual model."""
        metadata = request_metadata(data)
        requester = metadata["requester_metadata"] = without_policy(metadata.get("requester_metadata"))
        for key in [key for key in metadata if is_policy(key)]:
            del metadata[key]
        self.reload()
        router = self.router
        requested = data.get("model")
        if router is None or requested != router.virtual_model:
            return
        decision = router.decide(context_of(data, metadata), served_models())
        flat = self.runtime.attributes(decision, requested_model=requested)
        # Nested, so that providers that forward plain text metadata (Vertex labels) do not see it.
        requester["policy"] = {
            key.removeprefix("policy."): value
            for key, value in flat.items()
            if not isinstance(value, str) or len(value) < 256
        }
        metadata["_retroute"] = flat
        data["model"] = decision.action
        for span in spans_of(user_api_key_dict):
            for key, value in flat.items():
                span.set_attribute(key, value)

    async def async_post_call_response_headers_hook(
        self,
        data: dict[str, Any],
        user_api_key_dict: Any,
        response: Any,
        request_headers: dict[str, str] | None = None,
        litellm_call_info: dict[str, Any] | None = None,
    ) -> dict[str, str] | None:
        """x-policy-* headers, on streams too: the body's model stays the name the client asked for."""
        flat = request_metadata(data).get("_retroute")
        if not flat:
            return None
        names = ("id", "version", "action", "propensity", "arm", "reason")
        return {f"x-policy-{name}": str(flat[f"policy.{name}"]) for name in names}


def state_of(path: Path) -> tuple[int, int, int] | None:
    """What changes when a file is replaced; None if it is missing."""
    try:
        state = path.stat()
    except OSError:
        return None
    return state.st_mtime_ns, state.st_size, state.st_ino


def load_runtime(path: Path) -> Any:
    """The module in `path`, under a name of its own."""
    name = "retroute_policy_runtime"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"cannot load {path}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def request_metadata(data: dict[str, Any]) -> dict[str, Any]:
    """LiteLLM's own metadata of a request; /v1/messages and /v1/responses keep it under another key."""
    key = "litellm_metadata" if isinstance(data.get("litellm_metadata"), dict) else "metadata"
    if not isinstance(data.get(key), dict):
        data[key] = {}
    found: dict[str, Any] = data[key]
    return found


def is_policy(key: object) -> bool:
    return isinstance(key, str) and (key in ("policy", "_retroute") or key.startswith("policy."))


def without_policy(metadata: object) -> dict[str, Any]:
    return {k: v for k, v in metadata.items() if not is_policy(k)} if isinstance(metadata, Mapping) else {}


def context_of(data: Mapping[str, Any], metadata: Mapping[str, Any]) -> dict[str, object]:
    """What the policy may see of a chat, messages or responses request, in one form."""
    systems = (data.get("system"), data.get("instructions"))
    messages: list[object] = [{"role": "system", "content": system} for system in systems if system]
    given = data.get("messages", data.get("input"))
    messages.extend(given if isinstance(given, list) else [{"role": "user", "content": given}])
    text = data.get("text")
    return {
        "messages": messages,
        "tools": data.get("tools"),
        "response_format": data.get("response_format") or (text.get("format") if isinstance(text, Mapping) else None),
        "metadata": {"session": session_of(data, metadata)},
    }


def session_of(data: Mapping[str, Any], metadata: Mapping[str, Any]) -> str | None:
    """The conversation a request belongs to, if the client names it: the unit that stays in one arm."""
    client = metadata.get("requester_metadata")
    for place in (client if isinstance(client, Mapping) else {}, metadata):
        if isinstance(place.get("session_id"), str) and place["session_id"]:
            return str(place["session_id"])
        user = place.get("user_id")
        if isinstance(user, str) and "_session_" in user:  # as Anthropic's clients write it
            return user.rpartition("_session_")[2]
    session = data.get("litellm_session_id")
    return session if isinstance(session, str) and session else None


def served_models() -> set[str] | None:
    """Names the proxy can serve, so that an action whose deployment is missing is never chosen; None if unknown."""
    proxy = sys.modules.get("litellm.proxy.proxy_server")
    names = getattr(getattr(proxy, "llm_router", None), "get_model_names", None)
    return set(names()) if names else None


def spans_of(user_api_key_dict: Any) -> Iterator[Any]:
    """The request's open spans: LiteLLM's server span, and the current one where it is another."""
    server = getattr(user_api_key_dict, "parent_otel_span", None)
    if hasattr(server, "set_attribute"):
        yield server
    try:
        from opentelemetry import trace
    except ImportError:
        return
    current = trace.get_current_span()
    if current is not server:
        yield current


handler = PolicyRouter()
