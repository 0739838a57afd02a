"""Registries of pipeline components: each member is a pydantic model, so its parameters are declared once.

A component is described as ``{"name": "bm25", "k1": 0.9}``. An unknown name or parameter is an error that lists the known
ones; the description of a component reads back to an equal component.
"""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Generic, Self, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError


class Component(BaseModel):
    """A named, immutable member of a registry; its fields are its parameters (type, default and meaning)."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    name: ClassVar[str] = ""

    def describe(self) -> dict[str, Any]:
        """The JSON-ready description from which `Registry.create` rebuilds an equal component."""
        return {"name": self.name, **self.model_dump()}

    @classmethod
    def read(cls, parameters: Mapping[str, Any]) -> Self:
        """Build from parameters; raises ValueError in one line naming each bad parameter and the known ones."""
        try:
            return cls.model_validate(parameters)
        except ValidationError as error:
            wrong = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']} ({e['input']!r})" for e in error.errors())
            known = ", ".join(cls.model_fields) or "none"
            raise ValueError(f"{cls.name}: {wrong}; its parameters are: {known}") from None


C = TypeVar("C", bound=Component)


class Registry(Generic[C]):
    """The members of one kind of component, by name."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._members: dict[str, type[C]] = {}
        self._former: dict[str, str] = {}

    def register(self, name: str, former: str | None = None) -> Callable[[type[C]], type[C]]:
        """Class decorator: add a member, which `create` also knows by its `former` name. Raises ValueError if a name is taken."""

        def add(member: type[C]) -> type[C]:
            for taken in {name, former or name} & {*self._members, *self._former}:
                raise ValueError(f"{self.kind} {taken!r} is registered already")
            member.name = name
            self._members[name] = member
            if former is not None:
                self._former[former] = name
            return member

        return add

    def names(self) -> list[str]:
        """The names of the members, sorted."""
        return sorted(self._members)

    def members(self) -> list[type[C]]:
        """The members, sorted by name."""
        return [self._members[name] for name in self.names()]

    def create(self, description: Mapping[str, Any] | str) -> C:
        """Build the component that `description` names. Raises ValueError for an unknown name or parameter."""
        parameters = {"name": description} if isinstance(description, str) else dict(description)
        name = parameters.pop("name", None)
        name = self._former.get(name, name) if isinstance(name, str) else name
        if not isinstance(name, str) or name not in self._members:
            raise ValueError(f"unknown {self.kind} {name!r}; known: {', '.join(self.names())}")
        return self._members[name].read(parameters)
