"""Registries: one description, one component, and errors that say what was wrong."""

import time
from concurrent.futures import ThreadPoolExecutor
from threading import Event, Lock
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import Field

from keyblock.registry import Component, Registry


@pytest.fixture
def shapes() -> Registry[Component]:
    registry: Registry[Component] = Registry("shape")

    @registry.register("square")
    class Square(Component):
        side: int = Field(3, ge=1, description="of the square")

    @registry.register("dot")
    class Dot(Component):
        pass

    return registry


def test_a_description_reads_back_to_an_equal_component(shapes: Registry[Component]) -> None:
    square = shapes.create({"name": "square", "side": 7})
    assert square.describe() == {"name": "square", "side": 7}
    assert shapes.create(square.describe()) == square
    assert shapes.create("square").describe() == {"name": "square", "side": 3}, "a bare name means the defaults"
    assert shapes.names() == ["dot", "square"]


@pytest.mark.parametrize(
    ("description", "said"),
    [
        ("circle", r"unknown shape 'circle'; known: dot, square"),
        ({"side": 3}, r"unknown shape None; known: dot, square"),
        ({"name": ["square"]}, r"unknown shape \['square'\]; known: dot, square"),
        ({"name": "square", "sied": 3}, r"square: sied: .*\(3\); its parameters are: side"),
        ({"name": "square", "side": 0}, r"square: side: .*greater than or equal to 1 \(0\); its parameters are: side"),
        ({"name": "square", "side": "wide"}, r"square: side: .*\('wide'\)"),
        ({"name": "dot", "side": 1}, r"dot: side: .*; its parameters are: none"),
    ],
)
def test_errors_name_the_value_and_what_is_known(shapes: Registry[Component], description: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said) as error:
        shapes.create(description)
    assert "\n" not in str(error.value)


def test_a_taken_name_is_refused(shapes: Registry[Component]) -> None:
    with pytest.raises(ValueError, match="shape 'dot' is registered already"):
        shapes.register("dot")(Component)


def test_a_name_that_another_thread_is_importing_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """As when two bundles with a selector of another package are loaded at once."""
    registry: Registry[Component] = Registry("shape", "shapes")
    entered, importing = Event(), Lock()

    def load() -> None:
        with importing:  # as Python has a lock for each module
            if not entered.is_set():
                entered.set()
                time.sleep(0.1)
                registry.register("circle")(type("Circle", (Component,), {}))

    monkeypatch.setattr("keyblock.registry.entry_points", lambda **_: [SimpleNamespace(load=load)])
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(registry.create, "circle")
        assert entered.wait(10)
        assert registry.create("circle") == first.result()
