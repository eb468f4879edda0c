"""Resolve the signature of a handler once, at import: payload, context and dependencies."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field, replace
from typing import (
    TYPE_CHECKING,
    Any,
    Final,
    NotRequired,
    TypedDict,
    get_args,
    get_origin,
    get_type_hints,
)

from taskraft.worker.context import Context
from taskraft.worker.dependencies import Dependency
from taskraft.worker.errors import EncodeError, InvalidTask

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_NAMED: Final = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


@dataclass(frozen=True, slots=True)
class Signature:
    """Parameters and result of a handler."""

    function: Callable[..., Any]
    name: str
    """Module and name of the function, like "shop.tasks.welcome"."""
    is_async: bool
    wants_context: bool
    """Whether the first parameter is the context."""
    positional: Sequence[str]
    """Names of the payload parameters that callers may give by position, in order."""
    types: Mapping[str, Any]
    """Types of the payload parameters by name."""
    required: frozenset[str]
    dependencies: Mapping[str, Dependency] = field(repr=False)
    returns: Any
    """Type of the result; None for a handler without a result."""

    def arguments(self, args: Sequence[object], kwargs: Mapping[str, object]) -> dict[str, object]:
        """Return the arguments of a call by name; parameters with defaults may be absent.

        Raises:
            EncodeError: an argument is missing, unknown, given twice, or a dependency.
        """
        given = dict(zip(self.positional, args, strict=False))
        if len(args) > len(self.positional):
            most = len(self.positional)
            raise EncodeError(f"{self.name} takes {most} positional arguments, not {len(args)}")
        if kwargs:
            for name in kwargs:
                if name in given:
                    raise EncodeError(f"{self.name} got two values for {name}")
                if name not in self.types:
                    raise EncodeError(self._unknown(name))
            given.update(kwargs)
        if len(given) < len(self.types) and not self.required <= given.keys():
            missing = ", ".join(name for name in self.types if name in self.required - given.keys())
            raise EncodeError(f"{self.name} lacks the arguments: {missing}")
        return given

    def _unknown(self, name: str) -> str:
        if name in self.dependencies:
            return f"{self.name}: {name} is a dependency, which only the worker provides"
        return f"{self.name} has no parameter {name}; it has: {', '.join(self.types)}"

    def payload_type(self) -> object:
        """Return a TypedDict of the payload parameters."""
        fields = {
            name: kind if name in self.required else NotRequired[kind]
            for name, kind in self.types.items()
        }
        make: Any = TypedDict  # a type made at run time
        return make(self.function.__name__, fields)


def item_signature(batch: Signature) -> Signature:
    """Return the signature of one task of a batch handler: an item, and its result.

    Raises:
        InvalidTask: the handler does not take one list, or returns neither a list nor None.
    """
    parameters = list(batch.types.items())
    listed = [get_args(kind) for _, kind in parameters if get_origin(kind) is list]
    if len(parameters) != 1 or len(listed) != 1:
        raise InvalidTask(f"{batch.name}: a batch handler takes one list, such as rows: list[Row]")
    if get_origin(batch.returns) is list:
        (returns,) = get_args(batch.returns)
    elif batch.returns is None:
        returns = None
    else:
        raise InvalidTask(
            f"{batch.name}: a batch handler returns a list with one result for each item, such as "
            f"list[int], or None"
        )
    ((name, _),) = parameters
    return replace(
        batch,
        types={name: listed[0][0]},
        positional=(name,),
        required=frozenset({name}),
        returns=returns,
    )


def signature_of(function: Callable[..., Any]) -> Signature:
    """Return the signature of a module-level function.

    Raises:
        InvalidTask: the function is a lambda, a method, nested or a generator, or a parameter has
            no type.
    """
    name = f"{function.__module__}.{function.__qualname__}"
    _check_function(function, name)
    try:
        hints = get_type_hints(function, include_extras=True)
    except Exception as error:
        raise InvalidTask(f"{name}: a type cannot be resolved at import: {error}") from error
    parameters = list(inspect.signature(function).parameters.values())
    wants_context = bool(parameters) and hints.get(parameters[0].name) is Context
    positional: list[str] = []
    types: dict[str, Any] = {}
    required: set[str] = set()
    dependencies: dict[str, Dependency] = {}
    for parameter in parameters[wants_context:]:
        if parameter.kind not in _NAMED:
            raise InvalidTask(f"{name}: {parameter} is not supported; name each parameter")
        if isinstance(parameter.default, Dependency):
            dependencies[parameter.name] = parameter.default
            continue
        if parameter.name not in hints:
            raise InvalidTask(f"{name}: the parameter {parameter.name} needs a type")
        types[parameter.name] = hints[parameter.name]
        if parameter.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD:
            positional.append(parameter.name)
        if parameter.default is inspect.Parameter.empty:
            required.add(parameter.name)
    returns = hints.get("return", object)
    return Signature(
        function=function,
        name=name,
        is_async=inspect.iscoroutinefunction(function),
        wants_context=wants_context,
        positional=tuple(positional),
        types=types,
        required=frozenset(required),
        dependencies=dependencies,
        returns=None if returns is type(None) else returns,
    )


def _check_function(function: Callable[..., Any], name: str) -> None:
    """Raise InvalidTask if a worker could not import the function, or its call runs no code."""
    if not inspect.isfunction(function):
        raise InvalidTask(f"a task must be a function, not {function!r}")
    if "<" in name or "." in function.__qualname__:
        raise InvalidTask(
            f"{name} cannot be a task: a worker could not import it; define it at module level"
        )
    check_runs(function, name)


def check_runs(function: Callable[..., Any], name: str) -> None:
    """Raise InvalidTask if a call of the function runs none of its code."""
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise InvalidTask(
            f"{name} cannot be a handler: a call of a generator runs none of its code"
        )
