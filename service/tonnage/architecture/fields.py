"""The fields of one config as its table reads them: aliases, derivations, defaults, refusals by name."""

from collections.abc import Iterable, Mapping
from typing import Any

from tonnage.architecture.expressions import names_in, parse
from tonnage.architecture.tables import Table
from tonnage.errors import CatalogError, ContradictoryWorkload, MissingFact
from tonnage.units import BILLION

LARGEST = BILLION
"""No dimension of a real model is larger; beyond it a config is nonsense. [elements]"""


class Fields:
    """
    Lazy view of a config through a table; every lookup is remembered.

    `read` collects the keys that were looked at, `taken` the fields whose size came from the config class.
    """

    __slots__ = (
        "_config",
        "_expressions",
        "_given",
        "_open",
        "_table",
        "_values",
        "kind",
        "nested",
        "pointer",
        "read",
        "taken",
    )

    def __init__(
        self,
        table: Table,
        config: Mapping[str, Any],
        *,
        nested: bool = False,
        pointer: str = "/model/config",
        given: Mapping[str, Any] | None = None,
    ) -> None:
        """Fields of `config`; `nested` lets sizes the class assumes stand in; `given` are values from outside it."""
        self._table = table
        self._config = config
        self._expressions: Mapping[str, str] = table.derive
        self._given = dict(given or {})
        self._values = dict(self._given)
        self._open: list[str] = []
        self.nested = nested or table.released_with_defaults
        self.pointer = pointer
        self.kind = ""
        self.read: set[str] = set()
        self.taken: set[str] = set()

    @property
    def config(self) -> Mapping[str, Any]:
        """Config as given."""
        return self._config

    @property
    def given(self) -> dict[str, Any]:
        """Values that come from outside the config."""
        return self._given

    @property
    def table(self) -> Table:
        """Table it is read through."""
        return self._table

    def in_layer(self, layer: int, kind: str, feed: str) -> "Fields":
        """The same config as one layer sees it: `layer`, `kind` and `feed` become names."""
        inner = self._within(kind, {"layer": layer, "kind": kind, "feed": feed})
        own = self.own_config(layer)
        if own:
            inner._config = {**self._config, **own}
            inner._expressions = {name: text for name, text in inner._expressions.items() if name not in own}
        return inner

    def own_config(self, layer: int) -> Mapping[str, Any]:
        """What `per_layer_config` says of one layer."""
        configs = self._config.get("per_layer_config")
        own = configs.get(str(layer)) if isinstance(configs, Mapping) else None
        return own if isinstance(own, Mapping) else {}

    def of_kind(self, kind: str) -> "Fields":
        """The same layer seen by one of its mixers, with what the table says of that kind."""
        return self if kind == self.kind else self._within(kind, {"kind": kind})

    @property
    def on_assumptions(self) -> bool:
        """Whether sizes the class assumes stood in for keys that a released file leaves out."""
        return self._table.released_with_defaults

    def with_given(self, given: Mapping[str, Any]) -> "Fields":
        """The same config with values from outside it."""
        return Fields(
            self._table, self._config, nested=self.nested, pointer=self.pointer, given=self._given | dict(given)
        )

    def as_table(self, table: Table) -> "Fields":
        """The same config read by another table."""
        return Fields(table, self._config, nested=self.nested, pointer=self.pointer, given=self._given)

    def knowing(self, parts: Mapping[str, "Fields"]) -> "Fields":
        """The same config with its parts as names, for expressions such as `vision.hidden_size`."""
        given = self._given | dict(parts)
        return Fields(self._table, self._config, nested=self.nested, pointer=self.pointer, given=given)

    def _within(self, kind: str, given: dict[str, Any]) -> "Fields":
        table = self._table
        inner = Fields(table, self._config, nested=self.nested, pointer=self.pointer, given=self._given | given)
        inner._expressions = table.derive | table.kinds.get(kind, {})
        inner.kind = kind
        inner.read, inner.taken = self.read, self.taken
        return inner

    def __getitem__(self, name: str) -> Any:
        """Value of a field, None when nothing states it."""
        values = self._values
        if name in values and name not in self._open:
            return values[name]
        text = self._expressions.get(name)
        if text is None or name in self._open:
            return self._stated(name)
        self._open.append(name)
        try:
            value = self.evaluate(text)
        finally:
            self._open.pop()
        values[name] = value
        return value

    def _stated(self, name: str) -> Any:
        table = self._table
        if name in table.facts:
            return table.facts[name]
        present = [key for key in (*table.keys.get(name, []), name) if key in self._config]
        self.read.update(present)
        if present:
            values = (self._config[key] for key in present)
            return next((value for value in values if value is not None), None)
        default = table.defaults.get(name)
        if default is None and self.nested and name in table.assumed:
            self.taken.add(name)
            return table.assumed[name]
        return default

    def evaluate(self, text: str) -> Any:
        """Value of an expression; what it lacks is refused by name."""
        try:
            return parse(text)(self.__getitem__)
        except (TypeError, IndexError, KeyError, ZeroDivisionError, ValueError, AttributeError, OverflowError) as error:
            raise self._complaint(text) from error

    def size(self, text: str) -> int:
        """Value of an expression that must be a count of elements, 0 when nothing is to be built."""
        value = self.evaluate(text)
        if value is None or isinstance(value, bool) or not isinstance(value, int | float) or value != value // 1:
            raise self._complaint(text)
        if not 0 <= value <= LARGEST**2:
            raise self._complaint(text)
        return int(value)

    def at(self, name: str, layer: int) -> Any:
        """Value of a field whose expression may read `layer`, in that layer."""
        return self._within("", {"layer": layer})[name] if name in self._expressions else self[name]

    def _complaint(self, text: str) -> Exception:
        names = [name for name in names_in(text) if self._stated_or_none(name) is None]
        if names:
            return self.missing(names)
        keys = [self.key(name) for name in names_in(text)]
        stated = ", ".join(f"{k} = {self._config[k]!r:.60}" for k in keys if k in self._config)
        return ContradictoryWorkload(f"the config cannot be read: {stated or text}", pointer=self.pointer)

    def states(self, name: str) -> bool:
        """Whether the config itself, its class or the table gives a field, so that nothing is derived in its place."""
        return self._stated(name) is not None

    def _stated_or_none(self, name: str) -> Any:
        return self._values.get(name) if name in self._values else self._stated(name)

    def key(self, name: str) -> str:
        """Key of the config that holds a field, its first alias when none does."""
        candidates = (*self._table.keys.get(name, []), name)
        return next((key for key in candidates if key in self._config), candidates[0])

    def missing(self, names: Iterable[str]) -> MissingFact:
        """Refusal that names the keys the config lacks."""
        keys = [self.key(name) for name in names]
        where = self.pointer.removeprefix("/model/config").strip("/").replace("/", ".")
        return MissingFact(
            f"{where or 'the config'} lacks {', '.join(keys)}: without it the architecture is not defined",
            pointer=f"{self.pointer}/{keys[0]}",
        )

    def require(self) -> None:
        """Refuse a config that lacks required fields, all named at once."""
        varying = self._table.per_layer
        required = self._table.required
        absent = [name for name in required if (self._stated(name) if name in varying else self[name]) is None]
        if absent:
            raise self.missing(absent)

    def integer(self, name: str) -> int:
        """Positive whole number; refused by name when it is absent or is no such number."""
        value = self[name]
        if value is None:
            raise self.missing([name])
        return value if type(value) is int and 0 < value <= LARGEST else self._whole(name, value, least=1)

    def count(self, name: str) -> int:
        """Whole number that may be 0, which absence means. [unitless]"""
        value = self[name]
        return 0 if value is None or value is False else self._whole(name, value, least=0)

    def optional(self, name: str) -> int | None:
        """Positive whole number, None when it is absent or 0."""
        return self.count(name) or None

    def _whole(self, name: str, value: Any, *, least: int) -> int:
        whole = isinstance(value, int | float) and not isinstance(value, bool) and value % 1 == 0
        if not whole or not least <= value <= LARGEST:
            key = self.key(name)
            raise ContradictoryWorkload(
                f"{key} must be a whole number from {least} to {LARGEST}, not {value!r:.60}",
                pointer=f"{self.pointer}/{key}",
            )
        return int(value)

    def flag(self, name: str) -> bool:
        """Whether a field holds; absence is no."""
        return bool(self[name])

    def choice(self, name: str, *allowed: str) -> Any:
        """One of the allowed words, the first when nothing states it; a table that says otherwise is broken."""
        value = self[name]
        if value is None or value is False:
            return allowed[0]
        if value not in allowed:
            raise CatalogError(f"architecture table: {name} = {value!r} is none of {', '.join(allowed)}")
        return value

    def name(self, role: str) -> str:
        """Module name of a role in the checkpoint; a layer kind may have its own (`cross.q`)."""
        names = self._table.names
        return names.get(f"{self.kind}.{role}") or names.get(role) or role
