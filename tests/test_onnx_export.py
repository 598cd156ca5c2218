"""`retroute export --target onnx`: the graph gives what the router gives, in Python and in JavaScript."""

from __future__ import annotations

import json
import random
import subprocess
import unicodedata
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from ingest.errors import UsageError, WorkError
from optimizer.bundle import write_policy
from optimizer.bundle_check import failures
from optimizer.export.onnx import CONTEXTS, export, javascript
from optimizer.export.onnx_graph import to_onnx
from optimizer.runtime import DENSE, DIM, STOP, Model, Router, featurise, width

NAMES = ("cheap", "mid", "strong")
ALIKE = 1e-6
RANDOM = np.random.default_rng(3)
STANDARD = {"mean": RANDOM.normal(size=DIM), "scale": RANDOM.uniform(0.5, 2.0, DIM)}


def forest(depth: int, trees: int) -> dict[str, Any]:
    """Full trees of random decisions."""
    nodes = 2 ** (depth + 1) - 1
    inner = np.arange(nodes) < 2**depth - 1
    place = np.arange(nodes)
    return {
        "feature": np.where(inner, RANDOM.integers(0, DIM, (trees, nodes)), -1),
        "threshold": RANDOM.uniform(0, 2, (trees, nodes)),
        "left": np.tile(np.where(inner, 2 * place + 1, 0), (trees, 1)),
        "right": np.tile(np.where(inner, 2 * place + 2, 0), (trees, 1)),
        "value": RANDOM.normal(size=(trees, nodes, 3)),
    }


ARRAYS: dict[str, dict[str, Any]] = {
    "constant": {"values": np.array([1.0, 2.0, 2.0])},
    "linear": STANDARD | {"weights": RANDOM.normal(size=(DIM, 3)), "bias": RANDOM.normal(size=3)},
    "knn": STANDARD
    | {
        "points": np.repeat(RANDOM.normal(size=(60, DIM)), 2, axis=0).astype(np.float32),  # ties
        "targets": RANDOM.normal(size=(120, 3)),
        "k": np.array(7),
    },
    "trees": forest(5, 3),
}
MORE: dict[str, dict[str, Any]] = {
    "epsilon": {},
    "draws": {"draws": np.array([[0.5, 0.3, 0.2], [0.1, 0.8, 0.1], [0.0, 0.1, 0.9]])},
    "mixed": {"today": np.array([0.0, 0.4, 0.6]), "share": np.array(0.4)},
    "able": {"able": np.array([[200, 0, 1, 1], [0, 1, 0, 1], [0, 1, 0, 0]])},
}


def policy(kind: str, *more: str, epsilon: float = 0.1) -> Model:
    arrays = dict(ARRAYS[kind])
    for name in more:
        arrays |= MORE[name]
    return Model(kind, NAMES, arrays, epsilon)  # type: ignore[arg-type]


def session(graph: bytes) -> onnxruntime.InferenceSession:
    return onnxruntime.InferenceSession(graph, providers=["CPUExecutionProvider"])


def requests(count: int) -> np.ndarray[Any, Any]:
    """Features, of which some ask for tools or JSON and some are long."""
    rows = np.abs(RANDOM.normal(size=(count, DIM))).astype(np.float16).astype(np.float32)
    for name, share in (("tools", 0.5), ("json_response", 0.5), ("attachments", 0.7)):
        rows[RANDOM.random(count) < share, DENSE.index(name)] = 0.0
    rows[:, DENSE.index("conversation_characters")] = RANDOM.uniform(3.0, 8.0, count).astype(np.float16)
    return rows


@pytest.mark.parametrize("kind", ARRAYS)
@pytest.mark.parametrize("more", [("epsilon",), ("draws",), ("mixed",), ("able",), ("able", "draws", "mixed")])
def test_the_graph_gives_the_models_values_and_probabilities(kind: str, more: tuple[str, ...]) -> None:
    model = policy(kind, *more)
    features, allowed = requests(300), RANDOM.random((300, 3)) < 0.7
    allowed[~allowed.any(axis=1)] = True
    values, shares = session(to_onnx(model, "mid")).run(None, {"features": features, "allowed": allowed})
    assert np.abs(values - model.values(features)).max() < ALIKE
    may = allowed & model.able(features)
    served = may.any(axis=1)
    assert np.abs(shares[served] - model.probabilities(features[served], may[served])).max() < ALIKE
    if "able" in more:
        assert 0.0 < served.mean() < 1.0
        incumbent = np.where(allowed[:, 1], 1, allowed.argmax(axis=1))
        assert (shares[~served] == np.eye(3)[incumbent[~served]]).all()


def test_one_request_gives_what_a_batch_gives() -> None:
    run, features = session(to_onnx(policy("knn"), "mid")), requests(5)
    allowed = np.ones((5, 3), dtype=bool)
    together = run.run(["probabilities"], {"features": features, "allowed": allowed})[0]
    for number in range(5):
        one = {"features": features[[number]], "allowed": allowed[[number]]}
        assert run.run(["probabilities"], one)[0] == pytest.approx(together[[number]])


def test_the_graph_is_plain_onnx_of_the_stated_version_and_always_the_same_bytes() -> None:
    graph = to_onnx(policy("trees", "able"), "mid")
    assert graph == to_onnx(policy("trees", "able"), "mid")
    read = onnx.load_from_string(graph)
    onnx.checker.check_model(read, full_check=True)
    assert [(one.domain, one.version) for one in read.opset_import] == [("", 17)]
    assert read.ir_version == 9


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    write_policy(
        tmp_path / "run" / "assistant",
        policy("linear", "able", epsilon=0.25),
        policy_id="assistant",
        version="v1",
        revision=1,
        virtual_model="assistant",
        incumbent="mid",
        evaluation={},
        created_at="2026-11-30T00:00:00+00:00",
        canary_percent=20.0,
    )
    notes = export(tmp_path / "run" / "assistant", tmp_path / "out", "assistant")
    assert notes == ["the canary of 20 % is not in the graph: route that share of the sessions by it"]
    return tmp_path / "out"


def test_the_bundle_is_one_that_python_routers_take_too(bundle: Path) -> None:
    policy_folder = bundle / "policy"
    manifest = json.loads((policy_folder / "manifest.json").read_text())
    assert sorted(manifest["files"]) == ["golden.json", "policy.onnx", "runtime.py", "weights.npz"]
    assert failures(policy_folder) == []
    assert Router.load(policy_folder).decide({"messages": "hello"}).action in NAMES
    (policy_folder / "policy.onnx").write_bytes(b"other")
    assert failures(policy_folder) == ["policy.onnx is not the file the manifest was written for (sha256 differs)"]


def test_golden_vectors_are_the_runtimes_and_the_graphs(bundle: Path) -> None:
    golden = json.loads((bundle / "policy" / "golden.json").read_text())
    run = session((bundle / "policy" / "policy.onnx").read_bytes())
    contexts = [case["context"] for case in golden["cases"]]
    assert len({json.dumps(one) for one in contexts}) > 10
    for case in golden["cases"]:
        features = np.array(case["features"], dtype=np.float32)
        assert np.array_equal(features, featurise(case["context"]))
        allowed = np.array([[name in case["allowed"] for name in golden["actions"]]])
        shares = run.run(["probabilities"], {"features": features[None, :], "allowed": allowed})[0][0]
        assert np.abs(shares - case["probabilities"]).max() < ALIKE


def test_exporting_again_gives_the_same_bytes(bundle: Path, tmp_path: Path) -> None:
    export(tmp_path / "run" / "assistant", tmp_path / "again", "assistant")
    files = [path.relative_to(bundle) for path in bundle.rglob("*") if path.is_file()]
    assert len(files) == 6
    for name in files:
        assert (bundle / name).read_bytes() == (tmp_path / "again" / name).read_bytes()


def test_an_orchestrator_is_refused_with_where_it_goes(tmp_path: Path) -> None:
    actions = ("plan", STOP)
    write_policy(
        tmp_path / "policy",
        Model("constant", actions, {"values": np.zeros(2)}),
        policy_id="agent",
        version="v1",
        revision=1,
        virtual_model="agent",
        incumbent="plan",
        evaluation={},
        created_at="2026-11-30T00:00:00+00:00",
        script=["plan"],
    )
    with pytest.raises(UsageError, match="which agent acts next") as caught:
        export(tmp_path / "policy", tmp_path / "out", "agent")
    assert "--target agents" in caught.value.hint
    with pytest.raises(ValueError, match="episode"):
        to_onnx(Model("constant", actions, {"values": np.zeros(2)}), "plan")
    assert width(actions) > DIM


def test_a_sticky_policy_is_refused_with_where_it_goes(tmp_path: Path) -> None:
    write_policy(
        tmp_path / "policy",
        policy("constant"),
        policy_id="assistant",
        version="v1",
        revision=1,
        virtual_model="assistant",
        incumbent="mid",
        evaluation={},
        created_at="2026-11-30T00:00:00+00:00",
        sticky=True,
    )
    with pytest.raises(UsageError, match="keeps a session's action") as caught:
        export(tmp_path / "policy", tmp_path / "out", "assistant")
    assert "--target litellm" in caught.value.hint


def test_without_onnx_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "onnx", None)
    with pytest.raises(WorkError) as caught:
        to_onnx(policy("constant"), "mid")
    assert caught.value.hint == "pip install onnx"


def node(script: str, *, folder: Path, stdin: str = "") -> str:
    done = subprocess.run(
        ["node", "--input-type=module", "-e", script],
        cwd=folder,
        input=stdin,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def at_node(bundle: Path, node_modules: Path) -> Path:
    """The bundle where node finds its packages."""
    (bundle / "node_modules").symlink_to(node_modules)
    return bundle


def test_javascript_arrives_at_the_golden_vectors(at_node: Path) -> None:
    command = ["node", "policy_router.mjs", "policy"]
    done = subprocess.run(command, cwd=at_node, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    worst = json.loads(done.stdout)
    assert worst["cases"] > len(CONTEXTS) - 2
    assert (worst["hashes"], worst["features"]) == (0, 0.0)
    assert worst["probabilities"] < ALIKE


def test_javascript_draws_by_the_probabilities_and_says_so(at_node: Path) -> None:
    script = """
        import { load } from "./policy_router.mjs";
        const policy = await load("policy", () => 0.9999999);
        const context = { messages: [{ role: "user", content: "Merhaba İzmir 🙂" }], tools: [{}] };
        console.log(JSON.stringify(await policy.decide(context, ["mid", "strong"])));
    """
    decision = json.loads(node(script, folder=at_node))
    router = Router.load(at_node / "policy", draw=lambda: 0.0)
    wanted = router.model.probabilities(
        featurise({"messages": "Merhaba İzmir 🙂", "tools": [{}]})[None, :], np.array([[False, True, True]])
    )[0]
    assert decision["probabilities"] == pytest.approx(wanted.tolist(), abs=ALIKE)
    assert decision["action"] == "strong"  # the last one that is not impossible
    assert decision["propensity"] == pytest.approx(wanted[2], abs=ALIKE)
    assert decision["attributes"]["policy.features.hash"]


@pytest.mark.parametrize("name", ["policy.onnx", "golden.json"])
def test_javascript_refuses_a_changed_file(name: str, at_node: Path) -> None:
    with (at_node / "policy" / name).open("ab") as file:
        file.write(b" ")
    script = 'import { load } from "./policy_router.mjs"; await load("policy").catch((e) => console.log(e.message));'
    assert node(script, folder=at_node).strip() == f"{name} is not the file the manifest was written for"


def texts(count: int, seed: int) -> list[str]:
    """Any assigned characters, and many of those that the rules treat in a way of their own."""
    draw, odd = random.Random(seed), "aB1İıßΣς \t\n\r\u2028.)(-*`?=🙂é\u0301\u0323\u1e9b日ﬃ"
    found = []
    for _ in range(count):
        everything = (chr(draw.choice((draw.randrange(0x3000), draw.randrange(0x20000)))) for _ in range(40))
        assigned = [one for one in everything if unicodedata.category(one) not in ("Cn", "Cs")]
        found.append("".join(draw.choices(odd, k=draw.randrange(80)) + assigned[: draw.randrange(40)]))
    return found


def test_javascript_features_equal_the_runtimes_on_any_text(node_modules: Path, tmp_path: Path) -> None:
    (tmp_path / "node_modules").symlink_to(node_modules)
    (tmp_path / "policy_router.mjs").write_text(javascript(), encoding="utf-8")
    script = """
        import { readFileSync } from "node:fs";
        import { featurise } from "./policy_router.mjs";
        const texts = JSON.parse(readFileSync(0, "utf8"));
        console.log(JSON.stringify(texts.map((text) => Array.from(featurise({ messages: text })))));
    """
    asked = texts(1000, seed=11)
    found = json.loads(node(script, folder=tmp_path, stdin=json.dumps(asked)))
    for text, features in zip(asked, found, strict=True):
        assert np.array_equal(np.array(features, dtype=np.float32), featurise({"messages": text})), repr(text)
