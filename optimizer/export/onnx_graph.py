"""A policy as an ONNX graph: features and allowed actions in, values and probabilities out.

It computes what `runtime.Model.values`, `able` and `probabilities` do, in double precision inside, so that the best of
nearly equal actions is the same one. Legend as there: n decisions, d features, a actions, t trees, m nodes or points.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ingest.errors import WorkError
from optimizer import runtime
from optimizer.runtime import Model

if TYPE_CHECKING:
    from onnx import NodeProto, TensorProto

OPSET = 17
IR_VERSION = 9
DOCUMENT = (
    "features (n, d): float32 by the feature rules that manifest.json names, all finite. allowed (n, a): which actions "
    "may be taken, in the manifest's order. probabilities (n, a): of each action under the policy, before any canary; "
    "where no allowed action can serve the request the incumbent, or if it is not allowed the first that is. values "
    "(n, a): what the policy expects of each action."
)


def to_onnx(model: Model, incumbent: str) -> bytes:
    """The serialised graph. WorkError without the package onnx; ValueError for an orchestrator, whose router draws one
    step of an episode only."""
    if model.steps:
        raise ValueError("an orchestrator's probabilities depend on its episode, not on the features alone")
    try:
        import onnx
        from onnx import TensorProto, helper
    except ImportError:
        raise WorkError("this target needs the package onnx", "pip install onnx") from None
    graph = _Graph()
    x = graph.add("Cast", ["features"], to=TensorProto.DOUBLE)
    values = _values(graph, model, x)
    mask = _mask(graph, model, x)
    probabilities = _probabilities(graph, model, values, mask, model.actions.index(incumbent))
    graph.add("Identity", [values], "values")
    graph.add("Cast", [probabilities], "probabilities", to=TensorProto.FLOAT)
    a = len(model.actions)
    built = helper.make_graph(
        graph.nodes,
        "policy",
        [
            helper.make_tensor_value_info("features", TensorProto.FLOAT, ["n", runtime.width(model.actions)]),
            helper.make_tensor_value_info("allowed", TensorProto.BOOL, ["n", a]),
        ],
        [
            helper.make_tensor_value_info("values", TensorProto.DOUBLE, ["n", a]),
            helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, ["n", a]),
        ],
        graph.constants,
        doc_string=DOCUMENT,
    )
    opset = helper.make_opsetid("", OPSET)
    made = helper.make_model(built, opset_imports=[opset], ir_version=IR_VERSION, producer_name="retroute")
    onnx.checker.check_model(made)
    return bytes(made.SerializeToString(deterministic=True))


class _Graph:
    """Nodes in the order in which they are added, each named by its output."""

    def __init__(self) -> None:
        self.nodes: list[NodeProto] = []
        self.constants: list[TensorProto] = []

    def add(
        self, operator: str, inputs: Sequence[str], output: str = "", *, outputs: int = 1, **attributes: Any
    ) -> str:
        """The name of the first output."""
        from onnx import helper

        name = output or f"{operator}_{len(self.nodes)}"
        names = [name, *(f"{name}_{number}" for number in range(1, outputs))]
        self.nodes.append(helper.make_node(operator, list(inputs), names, name=name, **attributes))
        return name

    def constant(self, value: Any, dtype: Any = np.float64) -> str:
        from onnx import numpy_helper

        name = f"constant_{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(value, dtype=dtype, order="C"), name))
        return name

    def numbers(self, truths: str) -> str:
        """0 and 1 as doubles."""
        from onnx import TensorProto

        return self.add("Cast", [truths], to=TensorProto.DOUBLE)

    def total(self, values: str, axis: int = 1, keep: int = 1) -> str:
        """The sum along an axis."""
        return self.add("ReduceSum", [values, self.constant([axis], np.int64)], keepdims=keep)


def _values(graph: _Graph, model: Model, x: str) -> str:
    arrays = model.arrays
    if model.kind == "constant":
        rows = graph.add("Shape", ["allowed"])
        return graph.add("Expand", [graph.constant(arrays["values"]), rows])
    if model.kind == "trees":
        return _trees(graph, arrays["value"], runtime._Forest.of(arrays), x)
    centred = graph.add("Sub", [x, graph.constant(arrays["mean"])])
    standard = graph.add("Div", [centred, graph.constant(arrays["scale"])])
    if model.kind == "linear":
        product = graph.add("MatMul", [standard, graph.constant(arrays["weights"])])
        return graph.add("Add", [product, graph.constant(arrays["bias"])])
    return _nearest(graph, arrays["points"], arrays["targets"], int(arrays["k"]), standard)


def _nearest(graph: _Graph, points: NDArray[Any], targets: NDArray[Any], k: int, x: str) -> str:
    points = np.asarray(points, dtype=np.float64)
    squares = graph.total(graph.add("Mul", [x, x]))
    cross = graph.add("MatMul", [x, graph.constant(-2.0 * points.T)])
    from_origin = graph.add("Add", [squares, graph.constant((points**2).sum(axis=1))])
    distances = graph.add("Add", [from_origin, cross])
    least = graph.add("TopK", [distances, graph.constant([k], np.int64)], outputs=2, axis=1, largest=0)
    reach = graph.add("ReduceMax", [least], axes=[1], keepdims=1)
    room = graph.add("Mul", [graph.add("Add", [graph.add("Abs", [reach]), graph.constant(1.0)]), graph.constant(1e-9)])
    near = graph.numbers(graph.add("LessOrEqual", [distances, graph.add("Add", [reach, room])]))
    return graph.add("Div", [graph.add("MatMul", [near, graph.constant(targets)]), graph.total(near)])


def _trees(graph: _Graph, value: NDArray[Any], forest: runtime._Forest, x: str) -> str:
    """As many looks at all trees at once as the deepest has decisions; a leaf leads to itself."""
    from onnx import TensorProto

    feature, children = graph.constant(forest.feature, np.int64), graph.constant(forest.children, np.int64)
    threshold, two = graph.constant(forest.threshold), graph.constant(2, np.int64)
    rows = graph.add("Gather", [graph.add("Shape", ["allowed"]), graph.constant([0], np.int64)])
    shape = graph.add("Concat", [rows, graph.constant([len(forest.roots)], np.int64)], axis=0)
    node = graph.add("Expand", [graph.constant(forest.roots, np.int64), shape])
    for _ in range(forest.depth):
        read = graph.add("GatherElements", [x, graph.add("Gather", [feature, node])], axis=1)
        right = graph.add("Greater", [read, graph.add("Gather", [threshold, node])])
        turn = graph.add("Cast", [right], to=TensorProto.INT64)
        node = graph.add("Gather", [children, graph.add("Add", [graph.add("Mul", [node, two]), turn])])
    leaves = graph.add("Gather", [graph.constant(value.reshape(-1, value.shape[2])), node])  # (n, t, a)
    return graph.total(leaves, keep=0)


def _mask(graph: _Graph, model: Model, x: str) -> str:
    """(n, a) allowed and able."""
    if "able" not in model.arrays:
        return "allowed"
    table = np.asarray(model.arrays["able"], dtype=np.float64)
    most = np.where(table[:, 0] > 0, np.log1p(np.maximum(table[:, 0], 0.0)), np.inf)
    length = graph.add("Gather", [x, graph.constant([runtime._LENGTH_PLACE], np.int64)], axis=1)
    short = graph.add("LessOrEqual", [length, graph.constant(most)])
    needed = graph.add("Gather", [x, graph.constant(runtime._NEED_PLACES, np.int64)], axis=1)
    asks = graph.numbers(graph.add("Greater", [needed, graph.constant(0.0)]))
    lacking = graph.add("MatMul", [asks, graph.constant((table[:, 1:] == 0).T)])
    able = graph.add("And", [short, graph.add("Equal", [lacking, graph.constant(0.0)])])
    return graph.add("And", ["allowed", able])


def _probabilities(graph: _Graph, model: Model, values: str, mask: str, incumbent: int) -> str:
    arrays, a = model.arrays, len(model.actions)
    zero = graph.constant(0.0)
    may = graph.numbers(mask)
    count = graph.total(may)
    some = graph.add("Greater", [count, zero])
    place = graph.add("ArgMax", [graph.add("Where", [mask, values, graph.constant(-np.inf)])], axis=1, keepdims=1)
    best = _one_hot(graph, place, a)
    if "draws" in arrays:
        row = graph.add("Mul", [graph.add("MatMul", [best, graph.constant(arrays["draws"])]), may])
        result = graph.add("Div", [row, _never_zero(graph, graph.total(row))])
    else:
        even = graph.add("Mul", [may, graph.constant(model.epsilon)])
        even = graph.add("Div", [even, _never_zero(graph, count)])
        result = graph.add("Add", [even, graph.add("Mul", [best, graph.constant(1.0 - model.epsilon)])])
    if "share" in arrays:
        today = graph.add("Mul", [may, graph.constant(arrays["today"])])
        total, one = graph.total(today), graph.constant(1.0)
        share = graph.add("Where", [graph.add("Greater", [total, zero]), graph.constant(arrays["share"]), one])
        own = graph.add("Mul", [share, result])
        rest = graph.add("Mul", [graph.add("Sub", [one, share]), today])
        result = graph.add("Add", [own, graph.add("Div", [rest, _never_zero(graph, total)])])
    return graph.add("Where", [some, result, _fallback(graph, incumbent, a)])


def _fallback(graph: _Graph, incumbent: int, a: int) -> str:
    """The incumbent if it is allowed or nothing is, else the first allowed action."""
    allowed = graph.numbers("allowed")
    first = graph.add("ArgMax", [allowed], axis=1, keepdims=1)
    own = graph.constant([[incumbent]], np.int64)
    there = graph.add("Gather", [allowed, graph.constant([incumbent], np.int64)], axis=1)
    nothing = graph.add("Equal", [graph.total(allowed), graph.constant(0.0)])
    take = graph.add("Or", [graph.add("Greater", [there, graph.constant(0.0)]), nothing])
    return _one_hot(graph, graph.add("Where", [take, own, first]), a)


def _one_hot(graph: _Graph, place: str, a: int) -> str:
    """(n, 1) places -> (n, a)."""
    return graph.numbers(graph.add("Equal", [place, graph.constant(np.arange(a), np.int64)]))


def _never_zero(graph: _Graph, values: str) -> str:
    zero, one = graph.constant(0.0), graph.constant(1.0)
    return graph.add("Where", [graph.add("Greater", [values, zero]), values, one])
