"""Named tuples that the kernel is handed as one address.

To Numba a named tuple is all of its members, and an array seven numbers: the forty arrays of a scratch were three
hundred arguments of every function, at every call, and took most of the time of compiling. A bundle is a named tuple
that lies in memory once, while the kernel runs, and whose functions are given its address. Its members stand still for
so long, which is said of every reading of one (`invariant.load`): so that loops read them once.
"""

from typing import Any, TypeVar

from llvmlite import ir
from numba.core import cgutils, types
from numba.core.extending import infer_getattr, lower_getattr_generic, models, register_model, typeof_impl, unbox
from numba.core.pythonapi import NativeValue
from numba.core.typing.templates import AttributeTemplate

Class = TypeVar("Class", bound=type)


class BundleType(types.Type):
    """Of bundles of one class whose members have these types."""

    def __init__(self, cls: str, fields: tuple[str, ...], members: tuple[types.Type, ...]) -> None:
        self.fields, self.members = fields, members
        super().__init__(f"{cls}({', '.join(map(str, members))})")

    @property
    def key(self) -> Any:
        """What makes two of them the same."""
        return self.name, self.fields, self.members


@register_model(BundleType)
class BundleModel(models.PrimitiveModel):
    """An address."""

    def __init__(self, manager: Any, kind: BundleType) -> None:
        whole = ir.LiteralStructType([manager.lookup(member).get_value_type() for member in kind.members])
        super().__init__(manager, kind, whole.as_pointer())


def bundle(cls: Class) -> Class:
    """A class of named tuples that are handed over by their address."""

    @typeof_impl.register(cls)
    def typeof_bundle(value: Any, context: Any) -> types.Type | None:
        members = tuple(typeof_impl(member, context) for member in value)
        return None if None in members else BundleType(cls.__name__, value._fields, members)

    return cls


@unbox(BundleType)
def _unbox(kind: BundleType, found: Any, c: Any) -> NativeValue:
    pointer = cgutils.alloca_once(c.builder, c.context.get_value_type(kind).pointee)
    failed = cgutils.false_bit
    for index, member in enumerate(kind.members):
        native = c.unbox(member, c.pyapi.tuple_getitem(found, index))
        failed = c.builder.or_(failed, native.is_error)
        c.builder.store(native.value, cgutils.gep_inbounds(c.builder, pointer, 0, index))
    return NativeValue(pointer, is_error=failed)


@infer_getattr
class _Members(AttributeTemplate):
    key = BundleType

    def generic_resolve(self, kind: BundleType, name: str) -> types.Type | None:
        return kind.members[kind.fields.index(name)] if name in kind.fields else None


@lower_getattr_generic(BundleType)
def _member(context: Any, builder: Any, kind: BundleType, pointer: Any, name: str) -> Any:
    return _read(builder, cgutils.gep_inbounds(builder, pointer, 0, kind.fields.index(name)))


def _read(builder: Any, pointer: Any) -> Any:
    """Number by number, because of a structure it would be forgotten that it stands still."""
    kind = pointer.type.pointee
    if not isinstance(kind, ir.Aggregate):
        found = builder.load(pointer)
        found.set_metadata("invariant.load", builder.module.add_metadata([]))
        return found
    whole = ir.Constant(kind, ir.Undefined)
    for index in range(len(kind)):
        whole = builder.insert_value(whole, _read(builder, cgutils.gep_inbounds(builder, pointer, 0, index)), index)
    return whole
