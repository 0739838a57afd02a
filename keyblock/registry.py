"""Registries of pipeline components: each member is a pydantic model, so its parameters are declared once.

A component is described as ``{"name": "bm25", "k1": 0.9}``. An unknown name or parameter is an error that lists the known
ones; the description of a component reads back to an equal component.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib.metadata import entry_points
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
    """The members of one kind of component, by name.

    Args:
        kind: what a member is, for errors.
        group: entry points of other packages' modules that register members; they are imported when a name is not known here, or
            all names are asked for. None: nobody adds members.
    """

    def __init__(self, kind: str, group: str | None = None) -> None:
        self.kind, self.group = kind, group
        self._members: dict[str, type[C]] = {}

    def register(self, name: str) -> Callable[[type[C]], type[C]]:
        """Class decorator: add a member. Raises ValueError if the name is taken."""

        def add(member: type[C]) -> type[C]:
            if name in self._members:
                raise ValueError(f"{self.kind} {name!r} is registered already")
            member.name = name
            self._members[name] = member
            return member

        return add

    def names(self) -> list[str]:
        """The names of the members, sorted."""
        self._import_others()
        return sorted(self._members)

    def members(self) -> list[type[C]]:
        """The members, sorted by name."""
        return [self._members[name] for name in self.names()]

    def create(self, description: Mapping[str, Any] | str) -> C:
        """Build the component that `description` names. Raises ValueError for an unknown name or parameter."""
        parameters = {"name": description} if isinstance(description, str) else dict(description)
        name = parameters.pop("name", None)
        if not isinstance(name, str) or name not in self._members:
            self._import_others()
        if not isinstance(name, str) or name not in self._members:
            raise ValueError(f"unknown {self.kind} {name!r}; known: {', '.join(self.names())}")
        return self._members[name].read(parameters)

    def described(self, description: Mapping[str, Any] | str) -> dict[str, Any]:
        """The same description with all parameters; raises as `create` does."""
        return self.create(description).describe()

    def _import_others(self) -> None:
        """Import the modules of `group`, once."""
        for entry in entry_points(group=self.group) if self.group else ():
            with suppress(ModuleNotFoundError):  # an image may leave out a package that its distribution names
                entry.load()
        self.group = None  # not before: another thread would find a name unknown that is being imported
