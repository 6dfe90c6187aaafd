"""model.onnx: the same model as a graph of a dozen operations, for whatever runs ONNX.

In single precision: `X` (records, features) in; out come `prediction`, or `label` and `score`, and `probabilities`
where they are known. Rows that are too long are scaled down inside. Records are taken as features: what a schema makes
of raw columns comes before.
"""

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from sottovoce.export.model import SOFTMAX, probabilities
from sottovoce.features import CENTERS, PAIR_ORDER, PAIR_WEIGHT, Additive
from sottovoce.run.result import Result

OPSET, IR = 17, 9
"""Old enough for what is installed."""


def graph(result: Result, bound: float | None, metadata: dict[str, str]) -> bytes:
    """The graph as the bytes of a file; `metadata` are texts that it carries."""
    made = _Graph()
    rows, of = "X", result.spec.problem.features
    if isinstance(of, Additive):
        rows, bound = _expanded(made, of, result.public.get("distribution")), None
    if bound is not None:
        squares = made("ReduceSum", made("Mul", "X", "X"), made.whole([1]), keepdims=1)
        longest = made("Max", made("Sqrt", squares), made.number(bound))
        rows = made("Mul", "X", made("Div", made.number(bound), longest))
    weights = made.array(np.atleast_2d(result.coef).T)
    scores = made("Add", made("MatMul", rows, weights), made.array(np.atleast_1d(result.intercept)))
    K = len(np.atleast_2d(result.coef))
    outputs = [_output(made, "prediction" if result.classes is None else "score", scores, K)]
    if result.classes is not None:
        outputs += _answers(made, result, scores, K)
    incoming = helper.make_tensor_value_info("X", TensorProto.FLOAT, ["records", result.columns])
    whole = helper.make_graph(made.nodes, "sottovoce", [incoming], outputs, made.constants)
    file = helper.make_model(whole, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR)
    file.producer_name = "sottovoce"
    helper.set_model_props(file, metadata)
    onnx.checker.check_model(file, full_check=True)
    return bytes(file.SerializeToString())


def _expanded(made: "_Graph", of: Additive, distributions: Any) -> str:
    """Functions of columns, in the order of `features.Additive`."""
    places, low, high = (np.array(values) for values in zip(*of.numeric, strict=True))
    middle, half = (low + high) / 2.0, (high - low) / 2.0
    numbers = made("Gather", "X", made.whole(places.tolist()), axis=1)
    scaled = made("Div", made("Sub", numbers, made.array(middle)), made.array(half))
    t = made("Clip", scaled, made.number(-1.0), made.number(1.0))
    u = made("Mul", made("Add", t, made.number(1.0)), made.number(0.5))
    F = u if distributions is None else _distribution(made, u, np.array(distributions))
    parts = [t]
    if of.others:
        others = made("Gather", "X", made.whole(of.others), axis=1)
        norm = made("Sqrt", made("ReduceSum", made("Mul", others, others), made.whole([1]), keepdims=1))
        shorter = made("Div", made.number(of.rest), made("Max", norm, made.number(of.rest)))
        parts.append(made("Mul", others, shorter))
    if of.distribution:
        parts.append(made("Sub", made("Mul", F, made.number(2.0)), made.number(1.0)))
    mixed = F is not u and not of.distribution
    inner = made("Mul", made("Add", u, F), made.number(0.5)) if mixed else u
    polynomials = _legendre(made, t, max(of.degree, PAIR_ORDER)) if of.basis == "legendre" or of.pairs else []
    for j in range(of.d):
        each = made.whole([j])
        for k, weight in zip(of.orders, of.weights, strict=True):
            if of.basis == "legendre":
                value = made("Gather", polynomials[k], each, axis=1)
            else:
                value = made("Cos", made("Mul", made("Gather", inner, each, axis=1), made.number(np.pi * k)))
            parts.append(made("Mul", value, made.number(float(weight))))
    steps = range(1, PAIR_ORDER + 1)
    for i, j in of.pairs:
        for a in steps:
            for b in steps:
                left, right = (made("Gather", polynomials[k], made.whole([p]), axis=1) for k, p in ((a, i), (b, j)))
                parts.append(made("Mul", made("Mul", left, right), made.number(PAIR_WEIGHT / (a * b))))
    return made("Concat", *parts, axis=1)


def _distribution(made: "_Graph", u: str, F: Any) -> str:
    """F of every column: a straight line between centers of cells, constant beyond the first and the last."""
    slopes = np.diff(F, axis=1) / np.diff(CENTERS)
    wide = made("Unsqueeze", u, made.whole([2]))
    within = made("Min", made("Max", wide, made.array(CENTERS[:-1])), made.array(CENTERS[1:]))
    risen = made("Mul", made("Sub", within, made.array(CENTERS[:-1])), made.array(slopes))
    return made("Add", made("ReduceSum", risen, made.whole([2]), keepdims=0), made.array(F[:, 0]))


def _legendre(made: "_Graph", t: str, degree: int) -> list[str]:
    """P_0 … P_degree of every column, by their recurrence."""
    found = [made("Add", made("Mul", t, made.number(0.0)), made.number(1.0)), t]
    for k in range(1, degree):
        first = made("Mul", made("Mul", t, found[k]), made.number((2 * k + 1) / (k + 1)))
        found.append(made("Sub", first, made("Mul", found[k - 1], made.number(k / (k + 1)))))
    return found


def _answers(made: "_Graph", result: Result, scores: str, K: int) -> list[Any]:
    classes = list(result.classes or ())
    if K == 1:
        over = made("GreaterOrEqual", made("Squeeze", scores, made.whole([1])), made.number(result.scale.threshold))
        number = made("Cast", over, to=TensorProto.INT64)
    else:
        number = made("ArgMax", scores, axis=1, keepdims=0)
    names = all(isinstance(label, int) and not isinstance(label, bool) for label in classes)
    labels = made.whole(classes) if names else made.words([str(label) for label in classes])
    found = [
        _output(made, "label", made("Gather", labels, number), None, TensorProto.INT64 if names else TensorProto.STRING)
    ]
    link = probabilities(result)
    if link == SOFTMAX:
        found.append(_output(made, "probabilities", made("Softmax", scores, axis=1), K))
    elif link is not None:
        slope, shift = (float(each) for each in link)
        likely = made("Sigmoid", made("Add", made("Mul", scores, made.number(slope)), made.number(shift)))
        if K == 1:
            likely = made("Concat", made("Sub", made.number(1.0), likely), likely, axis=1)
        else:
            likely = made("Div", likely, made("ReduceSum", likely, made.whole([1]), keepdims=1))
        found.append(_output(made, "probabilities", likely, max(K, 2)))
    return found


def _output(made: "_Graph", name: str, value: str, width: int | None, kind: int = TensorProto.FLOAT) -> Any:
    made.nodes.append(helper.make_node("Identity", [value], [name]))
    return helper.make_tensor_value_info(name, kind, ["records"] if width is None else ["records", width])


class _Graph:
    """Operations and constants, named as they come."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def __call__(self, operation: str, *inputs: str, **attributes: Any) -> str:
        name = f"step{len(self.nodes)}"
        self.nodes.append(helper.make_node(operation, inputs, [name], **attributes))
        return name

    def _constant(self, kind: int, shape: list[int], values: Any) -> str:
        name = f"constant{len(self.constants)}"
        self.constants.append(helper.make_tensor(name, kind, shape, values))
        return name

    def array(self, values: Any) -> str:
        return self._constant(TensorProto.FLOAT, list(np.shape(values)), np.ravel(values).astype(np.float32).tolist())

    def number(self, value: float) -> str:
        return self._constant(TensorProto.FLOAT, [], [value])

    def whole(self, values: list[int]) -> str:
        return self._constant(TensorProto.INT64, [len(values)], values)

    def words(self, values: list[str]) -> str:
        return self._constant(TensorProto.STRING, [len(values)], [value.encode() for value in values])
