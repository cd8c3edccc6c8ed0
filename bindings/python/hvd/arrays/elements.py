"""Element types of all libraries, by name: as what the runtime takes them, and how they can be reduced.

Complex numbers go as pairs of floats, so that sums and averages are right. What the runtime does not know only moves,
as integers of the same width, or as the bytes of each element.
"""

from __future__ import annotations

from typing import NamedTuple

from hvd import _native, arguments
from hvd.reduce_op import Adasum, Average, Max, Min, Product, Sum

_ONLY_MOVES = "this type only moves (allgather, broadcast, alltoall); convert it to a type that is reduced"


class ElementType(NamedTuple):
    """`dlpack`: code and bits, for what DLPack knows. `trailing`: dimensions that the runtime sees after the array's
    own. `reductions`: those that allreduce has for the type; reducescatter has them without Adasum."""

    name: str
    code: int
    bytes: int
    dlpack: tuple[int, int] | None
    trailing: tuple[int, ...]
    reductions: tuple[int, ...]

    def require_reducible(self, function: str, op: int) -> None:
        """ValueError if elements of this type cannot be reduced so."""
        if op in self.reductions:
            return
        operation = arguments.OPERATIONS[arguments.reduce_op(op)]
        names = [arguments.OPERATIONS[each] for each in self.reductions]
        can = f"it has {', '.join(names[:-1])} and {names[-1]}" if names else _ONLY_MOVES
        raise ValueError(f"{function} with op={operation} is not supported for {self.name}: {can}")


# DLPack's type codes.
_INT, _UINT, _FLOAT, _BFLOAT, _COMPLEX, _BOOL = 0, 1, 2, 4, 5, 6
_FLOAT8 = {  # by name, from DLPack 1.1 on
    "float8_e3m4": 7,
    "float8_e4m3": 8,
    "float8_e4m3b11fnuz": 9,
    "float8_e4m3fn": 10,
    "float8_e4m3fnuz": 11,
    "float8_e5m2": 12,
    "float8_e5m2fnuz": 13,
    "float8_e8m0fnu": 14,
}
_LINEAR = (Average, Sum)
_ORDERED = (Min, Max)
_EXACT = (*_LINEAR, *_ORDERED, Product)
_ALL = (*_EXACT, Adasum)


def _number(name: str, dlpack_code: int, bits: int, reductions: tuple[int, ...]) -> ElementType:
    return ElementType(name, getattr(_native, name.upper()), bits // 8, (dlpack_code, bits), (), reductions)


_TYPES = {
    one.name: one
    for one in (
        *(_number(f"int{bits}", _INT, bits, _EXACT) for bits in (8, 16, 32, 64)),
        _number("uint8", _UINT, 8, _EXACT),
        *(_number(f"uint{bits}", _UINT, bits, ()) for bits in (16, 32, 64)),
        *(_number(f"float{bits}", _FLOAT, bits, _ALL) for bits in (16, 32, 64)),
        _number("bfloat16", _BFLOAT, 16, _ALL),
        _number("bool", _BOOL, 8, _ORDERED),
        *(ElementType(name, _native.UINT8, 1, (code, 8), (), ()) for name, code in _FLOAT8.items()),
        ElementType("complex32", _native.FLOAT16, 4, (_COMPLEX, 32), (2,), _LINEAR),
        ElementType("complex64", _native.FLOAT32, 8, (_COMPLEX, 64), (2,), _LINEAR),
        ElementType("complex128", _native.FLOAT64, 16, (_COMPLEX, 128), (2,), _LINEAR),
    )
}
_CODE_OF_WIDTH = {1: _native.UINT8, 2: _native.UINT16, 4: _native.UINT32, 8: _native.UINT64}


def element_type(name: str, size_bytes: int) -> ElementType:
    """The type of this name, as NumPy and PyTorch have it; one that is not known only moves."""
    if name in _TYPES:
        return _TYPES[name]
    code = _CODE_OF_WIDTH.get(size_bytes)
    if code is None:
        return ElementType(name, _native.UINT8, size_bytes, None, (size_bytes,), ())
    return ElementType(name, code, size_bytes, None, (), ())


def is_known(name: str) -> bool:
    """Whether it is the name of a type of numbers that DLPack has, too."""
    return name in _TYPES


_NAME_OF_DLPACK = {one.dlpack: one.name for one in _TYPES.values()}


def dlpack_type(code: int, bits: int) -> ElementType:
    """The type that DLPack calls so. ValueError if it is none of whole bytes."""
    name = _NAME_OF_DLPACK.get((code, bits))
    if name is None or bits % 8:
        raise ValueError(f"elements of DLPack's type {code} with {bits} bits are not supported")
    return element_type(name, bits // 8)


_FORMATS = {"?": "bool", "e": "float16", "f": "float32", "d": "float64", "Zf": "complex64", "Zd": "complex128"}
_FORMATS |= dict.fromkeys("bhilqn", "int") | dict.fromkeys("cBHILQN", "uint")


def buffer_type(buffer_format: str, size_bytes: int) -> ElementType:
    """The type of a buffer's elements, by their format as of the struct module. ValueError if it is not that of one
    number in the machine's byte order."""
    name = _FORMATS.get(buffer_format.lstrip("@=<"))
    if name is None:
        what = "structured elements" if buffer_format.startswith("T{") else "elements"
        raise ValueError(f"{what} of the format {buffer_format!r} are not supported: only single numbers are")
    return element_type(f"{name}{8 * size_bytes}" if name.endswith("int") else name, size_bytes)
