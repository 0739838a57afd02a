"""The served models, by name, and the choice of a model for a call."""

from collections.abc import Iterator, Sequence

from keyblock.ranking.warnings import LONGEST_SHOWN, first_few
from service.call import Call
from service.errors import RequestError
from service.ranking.model import Model


class Models:
    """Models of different names, the default one first. Immutable: a reload makes a new object.

    Args:
        models: at least one before anything is served.
    """

    def __init__(self, models: Sequence[Model]) -> None:
        self._by_name = {model.name: model for model in models}

    def __iter__(self) -> Iterator[Model]:
        return iter(self._by_name.values())

    def get(self, name: str) -> Model | None:
        """The model of this name."""
        return self._by_name.get(name)

    @property
    def default(self) -> Model:
        """The first model."""
        return next(iter(self._by_name.values()))

    def chosen(self, call: Call, *, strict: bool) -> Model:
        """The model that a call names; the default if it names none, or, with a warning if there are several, if it is unknown.

        Raises RequestError 422 for an unknown name if the call is strict, or `strict` says so for all calls.
        """
        if call.model is None:
            return self.default
        if (model := self.get(call.model)) is not None:
            return model
        problem = f"{call.model[:LONGEST_SHOWN]!r} is not served here: there is {first_few([repr(name) for name in self._by_name])}"
        if strict or call.strict:
            raise RequestError(422, f"{problem}; ask for one of them, or leave it out", ("model",))
        if len(self._by_name) > 1:  # clients of other services always send a name; among several it is likely a mistake
            call.warnings.append(f"model: {problem}; {self.default.name!r} has answered")
        return self.default
