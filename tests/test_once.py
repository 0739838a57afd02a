"""What several processes ask for is made by one of them."""

import multiprocessing
import time
from pathlib import Path

import pytest

from tests.once import once


def ask(factory: pytest.TempPathFactory, calls: Path) -> None:
    def make(place: Path) -> None:
        with calls.open("a") as out:
            out.write("made\n")
        time.sleep(0.2)  # the others ask meanwhile
        (place / "whole").touch()

    assert (once(factory, "some/thing", make) / "whole").exists()


def test_one_of_several_processes_makes_it(tmp_path_factory: pytest.TempPathFactory, tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=ask, args=(tmp_path_factory, tmp_path / "calls")) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(30)
    assert [process.exitcode for process in processes] == [0, 0, 0]
    assert (tmp_path / "calls").read_text() == "made\n"


def test_what_could_not_be_made_is_made_again(tmp_path_factory: pytest.TempPathFactory) -> None:
    def fail(place: Path) -> None:
        (place / "half").touch()
        raise OSError("no room")

    with pytest.raises(OSError, match="no room"):
        once(tmp_path_factory, "failed", fail)
    place = once(tmp_path_factory, "failed", lambda place: (place / "whole").touch())
    assert [path.name for path in place.iterdir()] == ["whole"]
