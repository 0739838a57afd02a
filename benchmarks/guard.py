"""Measures the event loop's microseconds that keys, request ids and the access log add to a request.

    python -m benchmarks.guard [--keys 100] [--requests 20000]

Calls a route that does nothing, through the ASGI interface without a network. It compares FastAPI alone with the application and
more and more features switched on, in turns. Prints the median of five runs of each.
"""

import argparse
import asyncio
import logging
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

from fastapi import FastAPI
from pydantic import SecretStr
from starlette.requests import Request
from starlette.responses import Response

from service.app import Service
from service.http.guard import requires
from service.keys.keys import New, Scope, load_keys, make
from service.settings import LogFormat, Settings
from service.telemetry.logs import formatter, with_request_id

TURNS = 5
PATH = "/nothing"


async def nothing(_: Request) -> Response:
    """The route's handler."""
    return Response(b"{}")


def plain() -> FastAPI:
    """FastAPI alone."""
    app = FastAPI()
    app.add_api_route(PATH, nothing, methods=["POST"])
    return app


def service(keys: list[New], *, access_log: bool) -> FastAPI:
    """The service's application with only this route."""
    app = Service()
    app.state.settings = Settings(api_keys=SecretStr("\n".join(new.entry for new in keys)), access_log=access_log)
    app.state.keyring = load_keys(app.state.settings)
    app.add_api_route(PATH, nothing, methods=["POST"], dependencies=[requires(Scope.RANK)])
    return app


async def seconds(app: Any, n: int, secret: str) -> float:
    """Seconds that `n` requests take, one after another."""
    headers = [(b"host", b"x"), (b"content-type", b"application/json"), (b"authorization", f"Bearer {secret}".encode())]
    scope = {"type": "http", "method": "POST", "path": PATH, "raw_path": PATH.encode(), "root_path": "", "query_string": b""}
    scope |= {"headers": headers, "client": ("10.0.0.1", 1), "server": ("x", 80), "scheme": "http", "http_version": "1.1"}
    sent: list[int] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message.get("status", 200))

    began = time.perf_counter()
    for _ in range(n):
        await app({**scope, "asgi": {"version": "3.0"}}, receive, send)
    took = time.perf_counter() - began
    assert set(sent) == {200}  # noqa: S101
    return took


def write_lines_to_nowhere() -> None:
    """Write log lines as the service does, but to /dev/null."""
    handler = logging.StreamHandler(open(os.devnull, "w", encoding="utf-8"))
    handler.setFormatter(formatter(LogFormat.JSON))
    handler.addFilter(with_request_id)
    logging.basicConfig(level=logging.INFO, handlers=[handler])


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", type=int, default=100)
    parser.add_argument("--requests", type=int, default=20_000)
    options = parser.parse_args()
    write_lines_to_nowhere()
    keys = [make(f"key-{n}", [Scope.RANK]) for n in range(options.keys)]
    apps: dict[str, Callable[[], FastAPI]] = {
        "FastAPI alone": plain,
        "request ids, no keys": lambda: service([], access_log=False),
        "and 1 key": lambda: service(keys[-1:], access_log=False),
        f"and {options.keys} keys": lambda: service(keys, access_log=False),
        "and a JSON line each": lambda: service(keys, access_log=True),
    }
    built = {name: build() for name, build in apps.items()}
    took: dict[str, list[float]] = {name: [] for name in built}
    for _ in range(TURNS):
        for name, app in built.items():
            took[name].append(asyncio.run(seconds(app, options.requests, keys[-1].secret)) / options.requests * 1e6)
    for name, each in took.items():
        print(f"{name:24}{statistics.median(each):8.1f} us a request")


if __name__ == "__main__":
    main()
