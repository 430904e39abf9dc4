"""Extension of Griffe, which reads the code for the reference: signatures and links.

Shapes of jaxtyping keep their quotes, tuples and modules with fields have a signature, and a name
in backticks is a link to what it names.
"""

import contextlib
import dataclasses
import re
from collections.abc import Iterator

import griffe

ARRAYS = ("Array", "np.ndarray")
WITH_FIELDS = ("NamedTuple", "Module", "Architecture", "Network", "NoPositions")
DATACLASS = "flax.struct.dataclass"
NAME = re.compile(r"`([A-Za-z_][\w.]*)`")


class Signatures(griffe.Extension):
    """Completes a package when it is loaded."""

    def on_package(self, *, pkg: griffe.Module, **kwargs) -> None:
        for found in list(_walk(pkg)):
            if isinstance(found, griffe.Class):
                _add_signature(found)
            if isinstance(found, griffe.Attribute):
                _quote(found.annotation)
            if isinstance(found, griffe.Function):
                for one in (found, *(found.overloads or [])):
                    _quote(one.returns)
                    for parameter in one.parameters:
                        _quote(parameter.annotation)
            if found.docstring:
                found.docstring.value = NAME.sub(_Linker(found), found.docstring.value)


def _walk(found: griffe.Object) -> Iterator[griffe.Object]:
    """An object and all that are defined in it."""
    yield found
    for member in found.members.values():
        if not isinstance(member, griffe.Alias):
            yield from _walk(member)


def _add_signature(found: griffe.Class) -> None:
    """Gives a class with fields the arguments of its `__init__`."""
    bases = {str(base).split("[")[0].rpartition(".")[2] for base in found.bases}
    decorated = any(str(decorator.value) == DATACLASS for decorator in found.decorators)
    if "__init__" in found.members or not (decorated or bases & {*WITH_FIELDS}):
        return
    fields = [
        griffe.Parameter(
            field.name,
            annotation=field.annotation,
            kind=griffe.ParameterKind.positional_or_keyword,
            default=field.value,
        )
        for field in found.members.values()
        if isinstance(field, griffe.Attribute)
        and field.annotation is not None
        and "property" not in field.labels
    ]
    if fields:
        parameters = griffe.Parameters(griffe.Parameter("self"), *fields)
        found.set_member("__init__", griffe.Function("__init__", parameters=parameters))


def _quote(found: object) -> None:
    """Puts a shape of one letter, which is also a name, into quotes again."""
    if isinstance(found, griffe.ExprSubscript) and isinstance(found.slice, griffe.ExprTuple):
        kind, *shapes = found.slice.elements
        if str(kind) in ARRAYS and len(shapes) == 1 and str(shapes[0])[:1] not in ("'", '"'):
            found.slice.elements = [kind, repr(str(shapes[0]))]
    if isinstance(found, griffe.Expr):
        for field in dataclasses.fields(found):
            part = None if field.name == "parent" else getattr(found, field.name)
            for each in part if isinstance(part, list) else [part]:
                _quote(each)


class _Linker:
    """Replaces names in the docstring of an object by links, if they name something of ours."""

    def __init__(self, found: griffe.Object):
        self.scope = found

    def __call__(self, match: re.Match) -> str:
        name = match[1]
        modules = self.scope.modules_collection
        for path in self._paths(name):
            try:
                target = modules[path]
            except (KeyError, griffe.GriffeError):
                continue
            if target.path != self.scope.path:
                code = f"<code>{name}</code>"
                return f'<autoref identifier="{target.path}" optional>{code}</autoref>'
        return match[0]

    def _paths(self, name: str) -> Iterator[str]:
        first, dot, rest = name.partition(".")
        with contextlib.suppress(griffe.NameResolutionError):
            yield self.scope.resolve(first) + dot + rest
        folder = self.scope.module.path
        while folder := folder.rpartition(".")[0]:  # a module of its folder, or of one around it
            yield f"{folder}.{name}"
