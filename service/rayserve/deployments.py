"""The application for Ray Serve: `preparation`, which is the service but for its graphs, asks `model`, which runs them.

``serve run service.rayserve.deployments:build bundle=bundles/mine``: arguments are settings, as are variables KEYBLOCK_*.
"""

import asyncio
from collections.abc import Mapping
from typing import Any

import ray
from fastapi import FastAPI
from pydantic import ValidationError
from ray import serve
from ray.exceptions import RayActorError
from ray.serve.exceptions import RayServeException
from ray.serve.handle import DeploymentHandle
from ray.serve.schema import LoggingConfig

from service.app import create_app
from service.http.admin import RELOAD_PATH
from service.options import one_line
from service.ranking.loading import served_bundles, upstream_bundle
from service.ranking.ranker import Ranker
from service.rayserve.leaving import Leaving
from service.remote.holder import Holder
from service.remote.replicas import Ask, GoneError, Replicas, opened
from service.remote.wire import Asked, Described, Named, Reply, Report
from service.settings import Settings
from service.start import share
from service.store.opening import open_store
from service.telemetry.logs import configure_logs

ONGOING = 4096  # more than are ever let in: who waits, and in which order, is for admission and the schedule to say
SURGE_PERCENT = 100  # a new replica is warm before an old one goes
LEAVING_SECONDS = 1.0  # in which a request is cancelled whose calls were
QUIET = LoggingConfig(enable_access_log=False)  # no line for each call: the service's own access_log says more


class Model:
    """A replica of the model; there once it is warm. See `Holder`."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        self._holder = Holder(begun(given))
        self._holder.warm()

    async def report(self) -> Report:
        """See Holder."""
        return self._holder.report()

    async def describe(self, name: Named) -> Described:
        """See Holder."""
        return await self._holder.describe(name)

    async def score(self, name: Named, asked: Asked) -> Reply:
        """See Holder."""
        return await self._holder.score(name, asked)

    def check_health(self) -> None:
        """Raise RuntimeError where the model's thread is dead or hangs: Serve puts another replica in the place of this one."""
        if not self._holder.engine.alive:
            raise RuntimeError("the model's thread hangs" if self._holder.engine.hung else "the model's thread is dead")


class Preparation:
    """A replica of the service without graphs; there once a replica of the model answers."""

    def __init__(self, given: Mapping[str, Any], model: "DeploymentHandle[Model]") -> None:
        self._settings, self._ask = begun(given), asking(model)

    async def __serve_build_asgi_app__(self) -> FastAPI:
        """What Serve hands requests to."""
        return await prepared(self._settings, self._ask)


async def prepared(settings: Settings, ask: Ask) -> FastAPI:
    """The service's application; it has no /admin/reload, which would reach one replica of many: deploy the application again."""
    replicas = Replicas(ask, settings.hung_seconds)
    bundles = [await opened(bundle, replicas) for bundle in served_bundles(settings)]
    replicas.listen()
    remote = any(one.elsewhere for one in bundles)
    ranker = Ranker(settings, bundles, open_store(settings), upstream_bundle(settings), health=replicas if remote else None)
    app = create_app(settings.model_copy(update={"admin_port": None}), ranker)
    app.add_middleware(Leaving)
    app.router.routes[:] = [route for route in app.router.routes if getattr(route, "path", "") != RELOAD_PATH]
    return app


def asking(handle: "DeploymentHandle[Model]") -> Ask:
    """Calls of the model's replicas."""

    async def ask(method: str, *arguments: Any) -> Any:
        response = getattr(handle, method).remote(*arguments)
        try:
            return await response
        except asyncio.CancelledError:
            response.cancel()
            if not _is_cancelled():  # but Serve has cancelled what a cancelled request has asked for before the request itself
                await asyncio.sleep(LEAVING_SECONDS)
                raise GoneError("Serve has cancelled the call") from None
            raise
        except (RayActorError, RayServeException) as error:
            raise GoneError(str(error)) from error

    return ask


def _is_cancelled() -> bool:
    """Whether somebody asks the current task to end."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def begun(given: Mapping[str, Any]) -> Settings:
    """The settings in this process, which begins with them; by default it has as many threads as Ray has reserved CPUs."""
    settings = Settings(**given)
    if not settings.threads:
        cpus = ray.get_runtime_context().get_assigned_resources().get("CPU", 1)  # type: ignore[no-untyped-call]
        settings = settings.model_copy(update={"threads": max(int(cpus), 1)})
    configure_logs(settings.log_level, settings.log_format)
    share(settings)
    return settings


def build(arguments: dict[str, Any]) -> serve.Application:
    """The application. How many replicas there are, and of what size, is for the configuration of Serve to say.

    Args:
        arguments: settings by name.

    Raises ValueError, one clear line, where one cannot be.
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
    """What Serve makes replicas of."""
    made: serve.Deployment = serve.deployment(
        name=name,
        max_ongoing_requests=ONGOING,
        max_surge_percent=SURGE_PERCENT,
        graceful_shutdown_timeout_s=settings.shutdown_seconds,
        logging_config=QUIET,
    )(kind)
    return made
