"""Recognises the engine of a server by the answers of its endpoints."""

import os
from dataclasses import replace
from typing import Any

from msgspec import Struct

from decodescope.analyzer.errors import DecodescopeError, InputError, MissingRequirement
from decodescope.analyzer.modelling.config import read_model_config
from decodescope.analyzer.text.formatting import shorten
from decodescope.analyzer.text.numbers import is_integer
from decodescope.attach.servers.client import Answer, ServerClient
from decodescope.attach.servers.engines import Engine, engines
from decodescope.attach.servers.metrics import engine_of, is_prometheus

_MAX_SHOWN = 80
_DESCRIBING_S = 60.0
_METRICS_PATHS = ("/metrics", "/prometheus/metrics")


class Model(Struct, frozen=True):
    """A model in the answer to /v1/models; `root` is the path or name it was loaded from."""

    id: str
    owned_by: str | None = None
    root: str | None = None


class Models(Struct, frozen=True):
    data: tuple[Model, ...] = ()


class EngineServer(Struct, frozen=True):
    """A recognised server. `metrics_path` is None if it has no metrics. A window has at least
    `ranks` files. A server that `is_prefill` never decodes. `problem` is why nothing else is known
    of it yet."""

    engine: Engine
    version: str | None
    served: str | None
    model: str | None
    metrics_path: str | None
    ranks: int = 1
    is_prefill: bool = False
    problem: str = ""

    @property
    def title(self) -> str:
        """The engine and its version, printable."""
        if self.problem:
            return "a server that does not answer"
        version = f" {shorten(self.version, _MAX_SHOWN)}" if self.version else ""
        return f"{engines()[self.engine].title}{version}"

    @property
    def serving(self) -> str:
        return f", serving {shorten(self.served, _MAX_SHOWN)}" if self.served else ""


def recognise(client: ServerClient) -> EngineServer:
    """The server behind `client`, by its endpoints.

    Raises:
        DecodescopeError: the server cannot be reached, or is no inference server.
    """
    models = client.get("/v1/models")
    model = _first_model(models)
    path, text = _metrics(client)
    engine = engine_of(text)
    if engine is None and model is not None:
        owned = (name for name, facts in engines().items() if facts.owner == model.owned_by)
        engine = next(owned, "unknown")
    if engine is None and path is None:
        models.required()
        raise InputError(
            f"{client.address.url}: has neither models (/v1/models) nor metrics (/metrics) of an "
            "inference server; check the URL"
        )
    return _described(client, engine or "unknown", model, path)


def vllm_trace_folder(client: ServerClient) -> str | None:
    """The folder of vLLM's profiler; None if the server does not name it. Its first answer
    describes the whole machine, which takes it seconds."""
    try:
        patient = replace(client, limit_s=_DESCRIBING_S)
        info = _object(patient, "/server_info?config_format=json")
    except DecodescopeError:
        return None
    return _text(_inner(_inner(info, "vllm_config"), "profiler_config"), "torch_profiler_dir")


def _described(
    client: ServerClient, engine: Engine, model: Model | None, path: str | None
) -> EngineServer:
    """The server, with the answers of its engine's own endpoints."""
    served = None if model is None else model.id
    names = [] if model is None else [model.root, model.id]
    if engine == "sglang":
        info = _object(client, "/server_info") or _object(client, "/get_server_info")
        return EngineServer(
            engine,
            _text(info, "version"),
            served or _text(info, "served_model_name"),
            _model(client, [_text(info, "model_path"), *names]),
            path,
            ranks=_count(info, "tp_size") * _count(info, "pp_size"),
            is_prefill=info.get("disaggregation_mode") == "prefill",
        )
    if engine == "llamacpp":
        version = _text(_object(client, "/props"), "build_info")
    else:
        version = _text(_object(client, "/version"), "version")
    return EngineServer(engine, version, served, _model(client, names), path)


def _metrics(client: ServerClient) -> tuple[str | None, bytes]:
    """The path at which the server has Prometheus text, and the text."""
    for path in _METRICS_PATHS:
        answer = client.get(path)
        if answer.is_success and is_prometheus(answer.body):
            return path, answer.body
        if answer.status in (401, 403):
            answer.required()
    return None, b""


def _first_model(answer: Answer) -> Model | None:
    if answer.status in (401, 403):
        answer.required()
    try:
        return next(iter(answer.json(Models).data), None) if answer.is_success else None
    except InputError:
        return None


def _object(client: ServerClient, path: str) -> dict[str, Any]:
    """The JSON object at `path`; empty if the server has none there."""
    answer = client.get(path)
    try:
        return answer.json(dict[str, Any]) if answer.is_success else {}
    except InputError:
        return {}


def _inner(values: dict[str, Any], name: str) -> dict[str, Any]:
    inner = values.get(name)
    return inner if isinstance(inner, dict) else {}


def _text(values: dict[str, Any], name: str) -> str | None:
    value = values.get(name)
    return value if isinstance(value, str) and value else None


def _count(values: dict[str, Any], name: str) -> int:
    value = values.get(name)
    return value if is_integer(value) and 0 < value <= 4096 else 1


def _model(client: ServerClient, names: list[str | None]) -> str | None:
    """The first of the server's names for its model that `--model` takes: a folder of this machine
    with a config.json, or a known name."""
    for name in filter(None, names):
        is_folder = os.path.isabs(name) and os.path.isfile(os.path.join(name, "config.json"))
        if is_folder and not client.address.is_local:
            continue
        if is_folder or not os.path.exists(name):
            try:
                read_model_config(name)
            except (InputError, MissingRequirement):
                continue
            return name
    return None
