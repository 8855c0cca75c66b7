"""Bytes and FLOPs of matrix products from recorded shapes."""

import json
from typing import Any

import numpy as np
import pytest

from decodescope.analyzer.trace import Trace
from tests.helpers.kineto_events import Event, codes, document, event, op, read, span, trace_of

BF16, FP8, FP32 = "c10::BFloat16", "c10::Float8_e4m3fn", "float"


def operator(
    name: str,
    dims: list[Any],
    types: list[str],
    *,
    at: int = 0,
    external: int = 1,
    end: int | None = None,
    tid: int = 1,
    **more: Any,
) -> Event:
    args = {"External id": external, "Input Dims": dims, "Input type": types, **more}
    return event("cpu_op", name, at, at + 10 if end is None else end, 1, tid, **args)


def rows(trace: Trace) -> list[tuple[int, int, int]]:
    work = trace.work
    return list(
        zip(work.external_id.tolist(), work.bytes.tolist(), work.flops.tolist(), strict=True)
    )


@pytest.mark.parametrize(
    ("name", "dims", "types", "bytes_", "flops"),
    [
        ("aten::mm", [[3, 5], [5, 7]], [BF16] * 2, 2 * (15 + 35 + 21), 2 * 3 * 5 * 7),
        ("aten::mm", [[3, 5], [5, 7], [3, 7]], [BF16] * 3, 2 * (15 + 35 + 21), 210),
        ("aten::mm", [[3, 5], [5, 7]], [FP32, FP32], 4 * (15 + 35 + 21), 210),
        ("aten::bmm", [[2, 3, 5], [2, 5, 7]], [BF16] * 2, 4 * (15 + 35 + 21), 420),
        (
            "aten::addmm",
            [[7], [3, 5], [5, 7], [], []],
            [BF16] * 3 + ["Scalar"] * 2,
            2 * (7 + 15 + 35 + 21),
            210,
        ),
        (
            "aten::addmm",
            [[7], [3, 5], [5, 7], [], [], [3, 7]],
            [BF16] * 3 + ["Scalar"] * 2 + [BF16],
            2 * (7 + 15 + 35 + 21),
            210,
        ),
        (
            "aten::baddbmm",
            [[2, 3, 7], [2, 3, 5], [2, 5, 7], [], []],
            [FP32] * 3 + ["Scalar"] * 2,
            4 * (42 + 30 + 70 + 42),
            420,
        ),
        (
            "aten::_scaled_mm",
            [[3, 5], [5, 7], [], [], [], [], [], []],
            [FP8, FP8, FP32, FP32, "", "", "Scalar", "Scalar"],
            15 + 35 + 8 + 21,
            210,
        ),
        ("aten::linear", [[2, 3, 5], [7, 5], []], [BF16, BF16, ""], 2 * (30 + 35 + 42), 420),
    ],
)
def test_every_product(
    name: str, dims: list[Any], types: list[str], bytes_: int, flops: int
) -> None:
    assert rows(trace_of(operator(name, dims, types))) == [(1, bytes_, flops)]


def test_a_scaled_product_returns_the_type_it_was_asked_for() -> None:
    dims = [[3, 5], [5, 7], [3, 1], [1, 7], [], [], [], []]
    types = [FP8, FP8, FP32, FP32, "", "", "Scalar", "Scalar"]
    concrete = ["", "", "", "", "", "", "15", "False"]
    trace = trace_of(operator("aten::_scaled_mm", dims, types, **{"Concrete Inputs": concrete}))
    assert rows(trace) == [(1, 15 + 35 + 4 * (3 + 7) + 2 * 21, 210)]


def test_an_expanded_tensor_is_read_once() -> None:
    trace = trace_of(
        operator(
            "aten::bmm",
            [[8, 3, 5], [8, 5, 7]],
            [BF16] * 2,
            **{"Input Strides": [[0, 5, 1], [35, 7, 1]]},
        )
    )
    assert rows(trace) == [(1, 2 * (15 + 8 * 35 + 8 * 21), 2 * 8 * 3 * 5 * 7)]


@pytest.mark.parametrize(
    ("dims", "types"),
    [
        ([[3, 5], [6, 7]], [BF16, BF16]),
        ([[3, 5]], [BF16]),
        ([[3, 5], [5, 7]], [BF16]),
        ([[3, 5], [5, 7]], [BF16, "a type of tomorrow"]),
        ([[3, 5, 1], [5, 7]], [BF16, BF16]),
        ([[-3, 5], [5, 7]], [BF16, BF16]),
        ([[2**40, 2**30], [2**30, 2**40]], [BF16, BF16]),
        ([[[3, 5]], [5, 7]], [BF16, BF16]),
        ("shapes", [BF16, BF16]),
        ([[3, 5.5], [5.5, 7]], [BF16, BF16]),
        ([], []),
    ],
)
def test_what_is_not_understood_has_no_row(dims: Any, types: Any) -> None:
    assert rows(trace_of(operator("aten::mm", dims, types))) == []


def test_linear_counts_only_where_no_product_is_inside() -> None:
    mm = ("aten::mm", [[3, 5], [5, 7]], [BF16] * 2)
    linear = ("aten::linear", [[3, 5], [7, 5]], [BF16] * 2)
    trace = trace_of(
        operator(*linear, at=0, end=50, external=1),
        operator(*mm, at=10, external=2),
        operator(*linear, at=100, end=150, external=3),
        operator(*mm, at=110, external=4, tid=2),
        operator(*linear, at=200, end=250, external=5),
        operator(*mm, at=250, external=6),
    )
    assert [row[0] for row in rows(trace)] == [2, 3, 4, 5, 6]


def test_ids_that_name_no_single_operator_have_no_row() -> None:
    mm = ("aten::mm", [[3, 5], [5, 7]], [BF16] * 2)
    trace = trace_of(
        operator(*mm, external=9),
        operator(*mm, external=9),
        operator(*mm, external=0),
        operator(*mm, external=-4),
        operator(*mm, external=12),
    )
    assert [row[0] for row in rows(trace)] == [12]


def test_the_careful_path_reads_the_same() -> None:
    events = [operator("aten::mm", [[3, 5], [5, 7]], [BF16] * 2, external=n + 1) for n in range(3)]
    text = document(events)
    odd = text.replace(b'"traceEvents": [', b'"traceEvents": [{"ph": "X", "pid": [1]}, ')
    assert rows(read(odd)) == rows(read(text)) != []


def test_what_an_export_carries_is_read_back() -> None:
    trace = trace_of(op(0, 5), decodescope_work=[[7, 100, 200], [3, 10, 20]])
    assert rows(trace) == [(3, 10, 20), (7, 100, 200)]
    damaged = trace_of(op(0, 5), decodescope_work=[[7, 100, -1]])
    assert (rows(damaged), codes(damaged)) == ([], {"bad_operator_work"})
    assert rows(trace_of(op(0, 5), decodescope_work=[])) == []


def test_modules_are_ranges_and_other_python_functions_are_frames() -> None:
    names = [
        "nn.Module: LlamaDecoderLayer_0",
        "torch/nn/modules/module.py(1): _call_impl",
        "nn.Module",
        "<built-in method item of Tensor object at 0x7f3aC0>",
        "<built-in method item of Tensor object at 0x7f3aD8>",
    ]
    calls = [event("python_function", name, 10, 90, 4242, 1) for name in names]
    trace = trace_of(span(0, 100, "decode_step"), *calls)
    found = [trace.names[index] for index in trace.ranges.name]
    assert found == ["decode_step", "LlamaDecoderLayer_0"]
    frames = sorted(trace.names[index] for index in trace.frames.name)
    assert frames == ["<built-in method item of Tensor>"] * 2 + names[2:0:-1]
    assert set(trace.frames.tid.tolist()) == {1}
    assert trace.source.events == 6


def test_external_ids_that_are_correlations_name_no_operator() -> None:
    old = trace_of(
        op(0, 5, 41, **{"External id": 41}), op(6, 9, 42, **{"External id": 42}), op(9, 11)
    )
    assert old.ops.external_id.tolist() == [-1, -1, -1]
    new = trace_of(op(0, 5, 41, **{"External id": 41}), op(6, 9, 42, **{"External id": 7}))
    assert new.ops.external_id.tolist() == [41, 7]


def test_rows_are_sorted_and_the_arrays_are_integers() -> None:
    mm = ("aten::mm", [[3, 5], [5, 7]], [BF16] * 2)
    trace = read(document([operator(*mm, external=id_) for id_ in (30, 5, 17)]))
    assert trace.work.external_id.tolist() == [5, 17, 30]
    assert trace.work.bytes.dtype == trace.work.flops.dtype == np.int64
    assert json.dumps(rows(trace))
