"""litellm's own `Router` routed by the exported handler: with the newest SDK that installs, and with the proxy's."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from litellm_proxy import ACTIONS, BIG, CODE, MID, MODEL_OF, SERVICE, SMALL, Upstream, litellm_command, policy

from optimizer.export.litellm import export
from optimizer.runtime import Breaker

APP = """
import asyncio, importlib.util, json, sys
import litellm

out, base, service, code, actions, incumbent, failing = json.loads(sys.argv[1])
spec = importlib.util.spec_from_file_location("policy_router", f"{out}/policy_router.py")
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
handler = module.handler
litellm.callbacks.append(handler)

def params(name):
    return {"model": "openai/" + name.partition("|")[0], "api_base": base, "api_key": "k"}

models = [{"model_name": name, "litellm_params": params(name)} for name in actions]
models.append({"model_name": service, "litellm_params": params(incumbent)})
router = litellm.Router(
    model_list=models, num_retries=0, fallbacks=[{name: [incumbent]} for name in actions if name != incumbent]
)
met = []

def said(data, text):
    met.append([data["model"], data["metadata"]["_retroute"]["policy.propensity"], text])

def ask(text, **more):
    return handler.routed(router, model=service, messages=[{"role": "user", "content": text}], **more)

async def main():
    for text in ("Hi", code):
        data = ask(text)
        said(data, (await router.acompletion(**data)).choices[0].message.content)
        data = ask(text, stream=True)
        chunks = [chunk async for chunk in await router.acompletion(**data)]
        said(data, "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices))
    data = handler.routed(router, model=service, input="Hi")
    answer = await router.aresponses(**data)
    said(data, answer.output[0].content[0].text)
    data = ask("Hi")
    said(data, router.completion(**data).choices[0].message.content)
    untouched = handler.routed(router, model=incumbent, messages=[])
    assert untouched["model"] == incumbent and "_retroute" not in untouched["metadata"]
    for _ in range(failing):
        if (data := ask(code + " fail"))["model"] == actions[2]:
            said(data, (await router.acompletion(**data)).choices[0].message.content)
    await asyncio.sleep(1.0)
    later = {ask(code)["model"] for _ in range(40)}
    print(json.dumps({"met": met, "later": sorted(later)}))

asyncio.run(main())
"""


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    with Upstream() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@pytest.mark.parametrize("which", ["newest", "the proxy's"])
def test_the_sdks_router_goes_where_the_handler_says(
    which: str, upstream: Upstream, tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    """Chat, streams, responses and synchronous calls reach the chosen model; an action that fails is answered by the
    incumbent, and after a few failures is no longer chosen."""
    python = sys.executable if which == "newest" else str(litellm_command(pytestconfig).parent / "python")
    export(policy(tmp_path / "policy", "v1"), tmp_path / "out", SERVICE)
    upstream.failing = {MODEL_OF[BIG]}
    told: list[Any] = [str(tmp_path / "out"), upstream.url, SERVICE, CODE, list(ACTIONS), MID, 12]
    (tmp_path / "app.py").write_text(APP, encoding="utf-8")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("RETROUTE_", "OTEL_"))}
    result = subprocess.run(
        [python, str(tmp_path / "app.py"), json.dumps(told)],
        env=environment | {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "NO_PROXY": "127.0.0.1"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert result.returncode == 0, result.stderr[-3000:]
    said = json.loads(result.stdout.splitlines()[-1])
    big = [action for action, _, _ in said["met"]].count(BIG)
    assert Breaker.FAILURES <= big <= Breaker.FAILURES + 3  # litellm tells of an outcome a moment later
    asked = [body["model"] for _, body in upstream.asked]
    for action, propensity, text in said["met"]:
        assert text == "Hello."
        assert round(propensity, 9) in {0.1, 0.8, 0.15, 0.85}
        model = MODEL_OF[action]
        assert model in asked
        asked = asked[asked.index(model) :]  # in the order of the requests
    assert set(said["later"]) <= {SMALL, MID}
