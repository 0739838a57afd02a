"""A supervisor whose processes are told what to answer."""

import socket
from pathlib import Path
from typing import Any, cast

from service.processes.loads import loads_file
from service.processes.supervisor import Supervisor
from service.processes.watched import Watched
from service.settings import Settings


class Fake:
    """A process.

    Args:
        name: of it.
        answers: by method, what a call returns or raises; of a list the next one each time.
        in_doubt: see Watched.

    Attributes:
        asked: what it was asked, in turn.
    """

    def __init__(self, name: str, *, in_doubt: bool = False, **answers: Any) -> None:
        self.name, self.asked, self.in_doubt = name, list[tuple[Any, ...]](), in_doubt
        self._answers = answers

    async def ask(self, method: str, *arguments: Any) -> Any:
        self.asked.append((method, *arguments))
        answer = self._answers[method]
        if isinstance(answer, list):
            answer = answer.pop(0) if len(answer) > 1 else answer[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


def unstarted(folder: Path, fronts: int) -> Supervisor:
    """One that has started nothing."""
    with socket.socket(socket.AF_UNIX) as listening, loads_file(fronts) as loads:
        listening.bind(str(folder / "model"))
        none: list[list[socket.socket]] = [[] for _ in range(fronts)]
        return Supervisor(Settings(processes=fronts), listening, loads.fileno(), none, none)


def supervisor(folder: Path, model: Fake, *fronts: Fake) -> Supervisor:
    """One of these processes."""
    made = unstarted(folder, len(fronts))
    made._model, made._fronts = cast(Watched, model), cast(list[Watched], list(fronts))
    return made
