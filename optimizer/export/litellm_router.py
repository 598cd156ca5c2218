"""Routes a LiteLLM proxy's requests by the policy in the folder `policy` beside this file.

A chat, messages or responses request for the policy's virtual model gets one of its actions as model; every other
request passes. What was decided goes onto the request's spans as policy.* attributes and into the response's x-policy-*
headers; what a client claims about policies is taken out of every request. Written by `retroute export --target
litellm`; needs litellm and numpy, nothing of retroute.

With litellm's own `Router` instead of the proxy: `litellm.callbacks.append(handler)`, then
`router.completion(**handler.routed(router, model="the virtual model", messages=...))`.

Stop it at once: create the file policy/KILL, or set RETROUTE_KILL=1. All requests then go to the incumbent.
"""

from __future__ import annotations

import importlib.util
import logging
import sys
import threading
import time
from collections.abc import Iterator, Mapping, MutableMapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from litellm.integrations.custom_logger import CustomLogger  # noqa: TID253 - this file runs inside the proxy

FOLDER = Path(__file__).resolve().parent / "policy"
CHECK_S = 1.0  # between two looks at the policy's files and the proxy's models
ROUTED = frozenset({"completion", "acompletion", "anthropic_messages", "responses", "aresponses"})
REQUESTS_OWN_FAULT = frozenset({400, 413, 422})
log = logging.getLogger("retroute.policy_router")


class PolicyRouter(CustomLogger):
    """LiteLLM's hooks. Whatever fails, the request goes on under the virtual model, which the incumbent serves."""

    def __init__(self, folder: Path = FOLDER) -> None:
        super().__init__()
        self.folder = folder
        self.runtime: Any = None
        self.router: Any = None  # the last good policy
        self.breaker: Any = None
        self.seen: object = None  # state of its files, good or not
        self.served: frozenset[str] | None = None  # actions the proxy can serve; None: not known
        self.checked_s = float("-inf")
        self.lock = threading.Lock()
        self.reload()

    def reload(self) -> None:
        """Load the policy if its files changed since the last look; on any failure keep the last good one."""
        now = time.monotonic()
        if now - self.checked_s < CHECK_S or not self.lock.acquire(blocking=False):
            return
        try:
            self.checked_s = now
            seen = [state_of(self.folder / name) for name in ("manifest.json", "weights.npz", "runtime.py")]
            if seen != self.seen:
                self.seen = seen
                self.load()
            self.look()
        finally:
            self.lock.release()

    def load(self) -> None:
        try:
            if self.runtime is None:
                self.runtime = load_runtime(self.folder / "runtime.py")
                if hasattr(self.runtime, "Breaker"):  # a policy made by an earlier release has none
                    self.breaker = self.runtime.Breaker()
            more = {} if self.breaker is None else {"breaker": self.breaker}
            router = self.runtime.Router.load(self.folder, **more)
            if problem := self.refusal(router):
                raise ValueError(problem)
            self.router = router
            log.info("policy %s version %s loaded", router.policy_id, router.version)
        except Exception as error:
            if self.router is None:
                log.warning("no policy, the incumbent answers: %s", error)
            else:
                log.warning("policy not loaded, version %s stays: %s", self.router.version, error)

    def look(self) -> None:
        """Find out which actions the proxy can serve, and say once which it cannot."""
        if self.router is None:
            return
        actions = self.router.model.actions
        found = served(proxy_router(), actions)
        if found != self.served and found is not None and len(found) < len(actions):
            log.warning("the proxy serves no model named %s: left out", ", ".join(sorted(set(actions) - found)))
        self.served = found

    def refusal(self, router: Any) -> str:
        """Why a policy that is sound in itself is not taken up here; empty if it is."""
        if getattr(router, "course", None) is not None:
            return "the policy chooses which agent acts next; a proxy sees single calls only"
        if router.expires <= router.now():
            return "the policy has expired"
        last = self.router
        if last is None:
            return ""
        if router.virtual_model != last.virtual_model:
            return f"it answers to the model name {router.virtual_model}, not {last.virtual_model}"
        if router.policy_id == last.policy_id and router.revision < last.revision:
            return f"revision {router.revision} is older than {last.revision}; a rollback is a new revision"
        actions = router.model.actions
        found = served(proxy_router(), actions)
        unknown = [] if found is None else [name for name in actions if name not in found]
        return f"the proxy serves no model named {', '.join(unknown)}" if unknown else ""

    async def async_pre_call_hook(
        self, user_api_key_dict: Any, cache: Any, data: dict[str, Any], call_type: str
    ) -> dict[str, Any]:
        """Decide once per client request, before LiteLLM picks a deployment."""
        try:
            strip(data)
            if call_type in ROUTED:
                self.reload()
                if self.served is None:  # the proxy has its models once it has started
                    self.look()
                self.route(user_api_key_dict, data, self.served)
        except Exception:
            log.exception("request not routed")
        return data

    def routed(self, router: Any, **request: Any) -> dict[str, Any]:
        """A request as litellm's own `router` is to get it: with the model that the policy chose. What was decided is
        under metadata["_retroute"]. Never raises."""
        metadata = request.get("metadata")
        data = {**request, "metadata": dict(metadata) if isinstance(metadata, Mapping) else {}}
        try:
            strip(data)
            self.reload()
            actions = () if self.router is None else self.router.model.actions
            self.route(None, data, served(router, actions))
        except Exception:
            log.exception("request not routed")
        return data

    def route(self, key: Any, data: dict[str, Any], served: frozenset[str] | None) -> None:
        """Choose data["model"] among the actions that are `served` and that the key allows, if it is the virtual model.
        None: all."""
        router = self.router
        requested = data.get("model")
        if router is None or requested != router.virtual_model:
            return
        metadata = request_metadata(data)
        may = permitted(key, router.model.actions)
        if served is not None:
            may = served if may is None else may & served
        decision = router.decide(context_of(data, metadata), may)
        if may is not None and decision.action not in may:
            return  # nothing that it may choose is served: the virtual model's own deployment answers
        flat = self.runtime.attributes(decision, requested_model=requested)
        # Nested, so that providers that forward plain text metadata (Vertex labels) do not see it.
        given = metadata.get("requester_metadata")
        requester = metadata["requester_metadata"] = {**given} if isinstance(given, Mapping) else {}
        requester["policy"] = Told(
            (name.removeprefix("policy."), value)
            for name, value in flat.items()
            if not isinstance(value, str) or len(value) < 256
        )
        metadata["_retroute"] = Told(flat)
        data["model"] = decision.action
        for span in spans_of(key):
            for name, value in flat.items():
                span.set_attribute(name, value)

    async def async_post_call_response_headers_hook(
        self,
        data: dict[str, Any],
        user_api_key_dict: Any,
        response: Any,
        request_headers: dict[str, str] | None = None,
        litellm_call_info: dict[str, Any] | None = None,
    ) -> dict[str, str] | None:
        """x-policy-* headers, on streams too: the body's model stays the name the client asked for."""
        places = (data.get("metadata"), data.get("litellm_metadata"))
        flat = next((place["_retroute"] for place in places if isinstance(place, dict) and "_retroute" in place), None)
        if not flat:
            return None
        names = ("id", "version", "action", "propensity", "arm", "reason")
        return {f"x-policy-{name}": str(flat[f"policy.{name}"]) for name in names}

    def log_success_event(self, kwargs: Any, response_obj: Any, start_time: Any, end_time: Any) -> None:
        """An attempt was answered: the breaker counts anew. LiteLLM calls one of these four for every attempt."""
        self.told(kwargs, "worked")

    async def async_log_success_event(self, kwargs: Any, response_obj: Any, start_time: Any, end_time: Any) -> None:
        self.told(kwargs, "worked")

    def log_failure_event(self, kwargs: Any, response_obj: Any, start_time: Any, end_time: Any) -> None:
        """An attempt failed: an action that does so again and again is set aside, unless the requests were at fault."""
        self.told(kwargs, "failed")

    async def async_log_failure_event(self, kwargs: Any, response_obj: Any, start_time: Any, end_time: Any) -> None:
        self.told(kwargs, "failed")

    def told(self, kwargs: Any, how: str) -> None:
        try:
            if self.breaker is None or getattr(kwargs.get("exception"), "status_code", None) in REQUESTS_OWN_FAULT:
                return
            given = kwargs.get("litellm_params") or {}
            metadata = given.get("litellm_metadata") or given.get("metadata") or {}
            if isinstance(action := metadata.get("model_group"), str):
                getattr(self.breaker, how)(action)
        except Exception:
            log.exception("outcome not counted")


class Told(dict[str, Any]):
    """What was decided. LiteLLM copies a request's metadata again and again, and this never changes."""

    def __deepcopy__(self, memo: Any) -> Told:
        return self


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


def strip(data: Mapping[str, Any]) -> None:
    """Take what a client claims about policies out of a request's metadata, and of what LiteLLM copied of it."""
    for place in ("metadata", "litellm_metadata"):
        metadata = data.get(place)
        if isinstance(metadata, MutableMapping):
            without_policy(metadata)
            for copied in ("requester_metadata", "spend_logs_metadata"):
                if isinstance(metadata.get(copied), MutableMapping):
                    metadata[copied] = without_policy(dict(metadata[copied]))


def without_policy(metadata: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    for key in [key for key in metadata if is_policy(key)]:
        del metadata[key]
    return metadata


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
        "previous_response_id": data.get("previous_response_id"),
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


def proxy_router() -> Any:
    """The proxy's `Router`; None outside a proxy, or before it has one."""
    return getattr(sys.modules.get("litellm.proxy.proxy_server"), "llm_router", None)


def served(router: Any, actions: tuple[str, ...]) -> frozenset[str] | None:
    """The actions that litellm's `Router` has a deployment for, by name or by a name with a star; None if unknown."""
    if hasattr(router, "registry"):  # from 1.109 on
        names = set(router.registry().names())
    elif hasattr(router, "get_model_names"):
        names = set(router.get_model_names())
    else:
        return None
    patterns = [literal(name) for name in names if "*" in name]
    return frozenset(a for a in actions if a in names or any(fnmatchcase(a, pattern) for pattern in patterns))


def literal(name: str) -> str:
    """A model's name as a pattern of which only the star means more than itself."""
    return name.replace("[", "[[]").replace("?", "[?]")


def permitted(key: Any, actions: tuple[str, ...]) -> frozenset[str] | None:
    """Actions that the models of a virtual key and of its team allow; None: all. A key that names none of them, but
    the virtual model, may have every action: that is what was handed out."""
    allowed = None
    for models in (getattr(key, "models", None), getattr(key, "team_models", None)):
        if models and isinstance(models, list) and not EVERYTHING.intersection(models):
            names = named(models)
            own = frozenset(action for action in actions if any(fnmatchcase(action, name) for name in names))
            if own:
                allowed = own if allowed is None else allowed & own
    return allowed


EVERYTHING = frozenset({"*", "all-proxy-models", "all-team-models"})


def named(models: list[str]) -> list[str]:
    """The models as patterns, with those of the access groups among them."""
    router = proxy_router()
    if hasattr(router, "registry"):
        groups = router.registry().access_groups()
    else:
        groups = router.get_model_access_groups() if hasattr(router, "get_model_access_groups") else {}
    every = [*models, *(name for model in models for name in groups.get(model, ()))]
    return [literal(name) for name in every if isinstance(name, str)]


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
    if current is not server and current.is_recording():
        yield current


handler = PolicyRouter()
