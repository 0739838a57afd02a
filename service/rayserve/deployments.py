"""The application for Ray Serve: `preparation`, the service without its graphs, calls `model`, which runs the graphs.

``serve run service.rayserve.deployments:build bundle=bundles/mine``: arguments are settings, as are variables KEYBLOCK_*.
"""

import asyncio
from collections.abc import Mapping
from typing import Any

import ray
from fastapi import FastAPI
from pydantic import ValidationError
from ray import serve
from ray.exceptions import ObjectLostError, RayActorError
from ray.serve.exceptions import RayServeException
from ray.serve.handle import DeploymentHandle
from ray.serve.schema import LoggingConfig

from service.app import create_app
from service.http.info import RELOAD_PATH
from service.options import one_line
from service.ranking.loading import served_bundles, upstream_bundle
from service.ranking.ranker import Ranker
from service.rayserve.leaving import Leaving
from service.remote.holder import Holder
from service.remote.replicas import Ask, GoneError, Replicas, opened
from service.settings import Settings
from service.start import configure_threads
from service.store.opening import open_store
from service.telemetry.logs import configure_logs

ONGOING = 4096  # more than are ever admitted: admission and the schedule decide which requests wait, and in which order
SURGE_PERCENT = 100  # a new replica is warm before an old one goes
LEAVING_SECONDS = 1.0  # within which Serve cancels a request after it has cancelled the request's calls
QUIET = LoggingConfig(enable_access_log=False)  # no line for each call: the service's own access_log says more


class Model(Holder):
    """A replica of the model; it exists once it is warm."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        super().__init__(start_settings(given))
        self.warm()

    def check_health(self) -> None:
        """Raise RuntimeError if the model's thread is dead or hangs: Serve then replaces this replica."""
        if not self.worker.alive:
            raise RuntimeError("the model's thread hangs" if self.worker.hung else "the model's thread is dead")


class Preparation:
    """A replica of the service without graphs; it exists once a replica of the model answers."""

    def __init__(self, given: Mapping[str, Any], model: "DeploymentHandle[Model]") -> None:
        self._settings, self._ask = start_settings(given), caller_of(model)

    async def __serve_build_asgi_app__(self) -> FastAPI:
        """The application that gets Serve's requests."""
        return await build_app(self._settings, self._ask)


async def build_app(settings: Settings, ask: Ask) -> FastAPI:
    """The service's application, without /admin/reload, which would only reach one of many replicas: deploy again instead."""
    replicas = Replicas(ask, settings.hung_seconds)
    bundles = [await opened(bundle, replicas) for bundle in served_bundles(settings)]
    replicas.listen()
    remote = any(one.elsewhere for one in bundles)
    ranker = Ranker(settings, bundles, open_store(settings), upstream_bundle(settings), health=replicas if remote else None)
    app = create_app(settings.model_copy(update={"admin_port": None}), ranker)
    app.add_middleware(Leaving)
    app.router.routes[:] = [route for route in app.router.routes if getattr(route, "path", "") != RELOAD_PATH]
    return app


def caller_of(handle: "DeploymentHandle[Model]") -> Ask:
    """A function that calls the model's replicas."""

    async def ask(method: str, *arguments: Any) -> Any:
        response = getattr(handle, method).remote(*arguments)
        try:
            return await response
        except asyncio.CancelledError:
            response.cancel()
            task = asyncio.current_task()
            if not (task and task.cancelling()):  # Serve cancels the calls of a cancelled request before the request itself
                await asyncio.sleep(LEAVING_SECONDS)
                raise GoneError("Serve has cancelled the call") from None
            raise
        except (RayActorError, ObjectLostError, RayServeException) as error:  # a large answer is lost with its node
            raise GoneError(str(error)) from error

    return ask


def start_settings(given: Mapping[str, Any]) -> Settings:
    """Begin this process with these settings; by default it has as many threads as Ray has reserved CPUs."""
    settings = Settings(**given)
    if not settings.threads:
        cpus = ray.get_runtime_context().get_assigned_resources().get("CPU", 1)  # type: ignore[no-untyped-call]
        settings = settings.model_copy(update={"threads": max(int(cpus), 1)})
    configure_logs(settings.log_level, settings.log_format)
    configure_threads(settings)
    return settings


def build(arguments: dict[str, Any]) -> serve.Application:
    """The application. The configuration of Serve decides the number of replicas and their size.

    Args:
        arguments: settings by name.

    Raises ValueError, one clear line, for an invalid setting.
    """
    try:
        settings = Settings(**arguments)
    except ValidationError as error:
        raise ValueError(one_line(error, arguments)) from None
    if unknown := set(arguments) - set(Settings.model_fields):
        raise ValueError(f"{sorted(unknown)[0]!r} is no setting: `keyblock-serve --help` lists them")
    model = deployment(Model, "model", settings).bind(arguments)
    return deployment(serve.ingress()(Preparation), "preparation", settings).bind(arguments, model)


def deployment(kind: type, name: str, settings: Settings) -> serve.Deployment:
    """A deployment, of which Serve makes replicas."""
    result: serve.Deployment = serve.deployment(
        name=name,
        max_ongoing_requests=ONGOING,
        max_surge_percent=SURGE_PERCENT,
        graceful_shutdown_timeout_s=settings.shutdown_seconds,
        logging_config=QUIET,
    )(kind)
    return result
