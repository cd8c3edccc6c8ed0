"""Tries every operation with every dtype, in every way that a framework has to call it, and prints the table of what
works, or writes it into a page. What works must give the right result, and what does not must be refused: anything else
ends the program.

    hvdrun -np 2 python tests/python/programs/supported.py numpy|torch|tensorflow|jax|mxnet [docs/supported.md]
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

import hvd

SIZE = 2
REDUCTIONS = ["sum", "average", "min", "max", "product", "adasum"]
OPERATIONS = [*REDUCTIONS, "grouped allreduce", "allgather", "broadcast", "alltoall", "reducescatter"]
ROOT = 1

Call = Callable[[Any], Any]


def values(rank: int, dtype: str, operation: str) -> np.ndarray:
    """Exact in all types, as are the results."""
    if operation == "adasum":  # orthogonal: they are added
        return np.array([[1.0, 0, 2, 0], [0, 1, 0, 2]][rank])
    if dtype.startswith("bool"):
        return np.array([[1.0, 0, 1, 0], [1, 1, 0, 0]][rank])
    factor = (1 + 2 * rank) * (1 + 1j if "complex" in dtype else 1)
    return np.array([1.0, 2, 4, 4]) * factor


def expected(operation: str, dtype: str, rank: int) -> np.ndarray:
    inputs = np.stack([values(each, dtype, operation) for each in range(SIZE)])
    if operation in ("min", "max", "product"):
        return {"min": np.min, "max": np.max, "product": np.prod}[operation](inputs, axis=0)
    own = slice(2 * rank, 2 * rank + 2)
    return {
        "sum": inputs.sum(0),
        "average": inputs.mean(0),
        "adasum": inputs.sum(0),
        "grouped allreduce": inputs.sum(0),
        "allgather": inputs.reshape(-1),
        "broadcast": inputs[ROOT],
        "alltoall": inputs[:, own].reshape(-1),
        "reducescatter": inputs.sum(0)[own],
    }[operation]


class Framework:
    """`ways`: a letter and a name for each way to call an operation."""

    title: str
    ways: ClassVar[dict[str, str]]
    package: Any
    refusals: tuple[type[BaseException], ...] = (ValueError, TypeError, NotImplementedError)

    def __enter__(self) -> None:
        """While a table is made."""

    def __exit__(self, *error: object) -> None:
        pass

    def dtypes(self) -> dict[str, Any]:
        raise NotImplementedError

    def tensor(self, array: np.ndarray, dtype: Any) -> Any:
        raise NotImplementedError

    def array(self, tensor: Any) -> np.ndarray:
        """Of float64, or complex128."""
        return np.asarray(tensor).astype(np.result_type(np.asarray(tensor).dtype, np.float64))

    def compiled(self, function: Call) -> Call:
        raise NotImplementedError

    def gradient(self, operation: str) -> float:
        """Where that of the result is 1 on all ranks."""
        if operation == "broadcast":
            return float(hvd.rank() == ROOT)
        return SIZE if operation in ("sum", "grouped allreduce") else 1

    def call(self, way: str, name: str, tensor: Any) -> Any:
        """The result; in way "d" the gradient, or None where there is none by nature."""
        raise NotImplementedError


def of_package(package: Any, name: str) -> Call:
    """By the names that all packages share."""
    if name in REDUCTIONS:
        op = getattr(package, name.capitalize())
        return lambda tensor: package.allreduce(tensor, op=op)
    return {
        "grouped allreduce": lambda tensor: package.grouped_allreduce([tensor, tensor], op=package.Sum)[1],
        "allgather": package.allgather,
        "broadcast": lambda tensor: package.broadcast(tensor, ROOT),
        "alltoall": lambda tensor: first(package.alltoall(tensor)),
        "reducescatter": lambda tensor: package.reducescatter(tensor, op=package.Sum),
    }[name]


def first(result: Any) -> Any:
    """Of an alltoall, which may also tell what came from whom."""
    return result[0] if isinstance(result, (tuple, list)) else result


def started(package: Any, name: str) -> Call:
    """The asynchronous form; its result is a handle."""
    if name in REDUCTIONS:
        op = getattr(package, name.capitalize())
        return lambda tensor: package.allreduce_async(tensor, op=op)
    return {
        "grouped allreduce": lambda tensor: package.grouped_allreduce_async([tensor, tensor], op=package.Sum),
        "allgather": package.allgather_async,
        "broadcast": lambda tensor: package.broadcast_async(tensor, ROOT),
        "alltoall": package.alltoall_async,
        "reducescatter": lambda tensor: package.reducescatter_async(tensor, op=package.Sum),
    }[name]


def finished(package: Any, name: str, handle: Any) -> Any:
    result = package.synchronize(handle)
    return result[1] if name == "grouped allreduce" else first(result)


FLOATS_OF_8_BITS = ["float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"]
INTEGERS = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
COMPLEX = ["complex64", "complex128"]


class OfNumpy(Framework):
    title = "NumPy (`import hvd`)"
    ways: ClassVar = {"e": "eager", "a": "asynchronous"}

    def dtypes(self) -> dict[str, Any]:
        import ml_dtypes

        extended = {name: getattr(ml_dtypes, name) for name in ["bfloat16", *FLOATS_OF_8_BITS]}
        own = {name: np.dtype(name) for name in ["bool", *INTEGERS, "float16", "float32", "float64", *COMPLEX]}
        return own | extended

    def tensor(self, array: np.ndarray, dtype: Any) -> Any:
        return array.astype(dtype)

    def array(self, tensor: Any) -> np.ndarray:
        return tensor.astype(np.complex128 if tensor.dtype.kind == "c" else np.float64)

    def call(self, way: str, name: str, tensor: Any) -> Any:
        if way == "e":
            return of_package(hvd, name)(tensor)
        return finished(hvd, name, started(hvd, name)(tensor))


class OfHorovod(Framework):
    def gradient(self, operation: str) -> float:
        """Horovod multiplies that of a reducescatter's sum by the number of ranks, too."""
        return SIZE if operation == "reducescatter" else super().gradient(operation)


class OfTorch(OfHorovod):
    title = "PyTorch (`hvd.torch`)"
    ways: ClassVar = {"e": "eager", "c": "compiled", "a": "asynchronous", "d": "differentiated"}

    def __init__(self) -> None:
        self.torch = importlib.import_module("torch")
        self.package = importlib.import_module("hvd.torch")
        self.refusals = (*Framework.refusals, importlib.import_module("torch._dynamo.exc").Unsupported)

    def dtypes(self) -> dict[str, Any]:
        names = ["bool", *INTEGERS, "float16", "bfloat16", "float32", "float64", *FLOATS_OF_8_BITS, *COMPLEX]
        return {name: getattr(self.torch, name) for name in names}

    def tensor(self, array: np.ndarray, dtype: Any) -> Any:
        return self.torch.from_numpy(array).to(dtype)

    def array(self, tensor: Any) -> np.ndarray:
        return tensor.detach().to(self.torch.complex128 if tensor.is_complex() else self.torch.float64).numpy()

    def compiled(self, function: Call) -> Call:
        self.torch.compiler.reset()
        return self.torch.compile(function, backend="eager", fullgraph=True)

    def call(self, way: str, name: str, tensor: Any) -> Any:
        operation = of_package(self.package, name)
        if way == "e":
            return operation(tensor)
        if way == "a":
            return finished(self.package, name, started(self.package, name)(tensor))
        if way == "c":
            return self.compiled(operation)(tensor)
        if not (tensor.is_floating_point() or tensor.is_complex()):
            return None
        tensor.requires_grad_()
        result = operation(tensor)
        if not result.requires_grad:
            raise NotImplementedError("no gradient")
        result.backward(self.torch.ones_like(result))
        return tensor.grad


class OfTensorflow(OfHorovod):
    title = "TensorFlow (`hvd.tensorflow`)"
    ways: ClassVar = {"e": "eager", "c": "in `tf.function`", "d": "differentiated"}

    def __init__(self) -> None:
        self.tf = importlib.import_module("tensorflow")
        self.package = importlib.import_module("hvd.tensorflow")
        self.refusals = (*Framework.refusals, self.tf.errors.InvalidArgumentError, LookupError)

    def dtypes(self) -> dict[str, Any]:
        names = ["bool", *INTEGERS, "float16", "bfloat16", "float32", "float64", *FLOATS_OF_8_BITS[::2], *COMPLEX]
        return {name: self.tf.dtypes.as_dtype(name) for name in names}

    def tensor(self, array: np.ndarray, dtype: Any) -> Any:
        return self.tf.constant(array.astype(dtype.as_numpy_dtype))

    def array(self, tensor: Any) -> np.ndarray:
        array = tensor.numpy()
        return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)

    def compiled(self, function: Call) -> Call:
        return self.tf.function(function)

    def call(self, way: str, name: str, tensor: Any) -> Any:
        operation = of_package(self.package, name)
        if way == "e":
            return operation(tensor)
        if way == "c":
            return self.compiled(operation)(tensor)
        if not (tensor.dtype.is_floating or tensor.dtype.is_complex):
            return None
        with self.tf.GradientTape() as tape:
            tape.watch(tensor)
            result = operation(tensor)
        gradient = tape.gradient(result, tensor, self.tf.ones_like(result))
        if gradient is None:
            raise NotImplementedError("no gradient")
        return gradient


class OfJax(Framework):
    title = "JAX (`hvd.jax`)"
    ways: ClassVar = {"e": "eager", "c": "in `jax.jit`", "d": "differentiated"}

    def __init__(self) -> None:
        self.jax = importlib.import_module("jax")
        self.package = importlib.import_module("hvd.jax")

    def __enter__(self) -> None:
        self.jax.config.update("jax_enable_x64", True)

    def __exit__(self, *error: object) -> None:
        self.jax.config.update("jax_enable_x64", False)

    def dtypes(self) -> dict[str, Any]:
        names = ["bool", *INTEGERS, "float16", "bfloat16", "float32", "float64", *FLOATS_OF_8_BITS, *COMPLEX]
        return {name: getattr(self.jax.numpy, name + "_" * (name == "bool")) for name in names}

    def tensor(self, array: np.ndarray, dtype: Any) -> Any:
        return self.jax.numpy.asarray(array).astype(dtype)

    def array(self, tensor: Any) -> np.ndarray:
        array = np.asarray(tensor)
        return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)

    def compiled(self, function: Call) -> Call:
        return lambda *given: self.jax.block_until_ready(self.jax.jit(function)(*given))

    def call(self, way: str, name: str, tensor: Any) -> Any:
        operation = of_package(self.package, name)
        if way == "e":
            return operation(tensor).block_until_ready()
        if way == "c":
            return self.compiled(operation)(tensor)
        if not self.jax.numpy.issubdtype(tensor.dtype, self.jax.numpy.inexact):
            return None
        result, pull_back = self.jax.vjp(operation, tensor)
        return pull_back(self.jax.numpy.ones_like(result))[0].block_until_ready()


class OfMxnet(Framework):
    title = "MXNet (`hvd.mxnet`)"
    ways: ClassVar = {"e": "eager"}

    def __init__(self) -> None:
        self.mxnet = importlib.import_module("mxnet")
        self.package = importlib.import_module("hvd.mxnet")

    def dtypes(self) -> dict[str, Any]:
        names = ["bool", "int8", "int32", "int64", "uint8", "float16", "float32", "float64"]
        own = {name: np.dtype(name) for name in names}
        return own | {"bfloat16": np.dtype([("bfloat16", np.uint16)])}  # as MXNet has it

    def tensor(self, array: np.ndarray, dtype: Any) -> Any:
        return self.mxnet.nd.array(array, dtype="float32").astype(dtype)

    def array(self, tensor: Any) -> np.ndarray:
        return tensor.astype("float32").asnumpy().astype(np.float64)

    def call(self, way: str, name: str, tensor: Any) -> Any:
        return of_package(self.package, name)(tensor)


FRAMEWORKS = {"numpy": OfNumpy, "torch": OfTorch, "tensorflow": OfTensorflow, "jax": OfJax, "mxnet": OfMxnet}


def require_right(framework: Framework, way: str, name: str, dtype: str, result: Any) -> None:
    rank = hvd.rank()
    if way == "d":
        wanted: Any = np.full(len(values(rank, dtype, name)), framework.gradient(name))
    else:
        wanted = expected(name, dtype, rank)
    np.testing.assert_array_equal(framework.array(result), wanted, err_msg=f"{way} {name} {dtype}")


def works(framework: Framework, way: str, name: str, dtype: str, native: Any) -> bool:
    """False: it is refused."""
    tensor = framework.tensor(values(hvd.rank(), dtype, name), native)
    try:
        result = framework.call(way, name, tensor)
    except framework.refusals as error:
        assert str(error), (way, name, dtype)
        return False
    if result is None:
        return False
    require_right(framework, way, name, dtype, result)
    return True


def all_work_compiled(framework: Framework, names: list[str], dtype: str, native: Any) -> bool:
    """In one program, which takes less time to compile than one for each."""
    inputs = [framework.tensor(values(hvd.rank(), dtype, name), native) for name in names]
    operations = [of_package(framework.package, name) for name in names]
    try:
        results = framework.compiled(lambda *given: [call(each) for call, each in zip(operations, given)])(*inputs)
    except framework.refusals:
        return False
    for name, result in zip(names, results):
        require_right(framework, "c", name, dtype, result)
    return True


def ways_that_work(framework: Framework, dtype: str, native: Any) -> dict[str, set[str]]:
    """By operation."""
    found = {
        name: {way for way in framework.ways if way != "c" and works(framework, way, name, dtype, native)}
        for name in OPERATIONS
    }
    eagerly = [name for name in OPERATIONS if "e" in found[name]]
    if "c" in framework.ways and eagerly:
        at_once = all_work_compiled(framework, eagerly, dtype, native)
        for name in eagerly:
            if at_once or works(framework, "c", name, dtype, native):
                found[name].add("c")
    return found


def table(framework: Framework) -> list[str]:
    """The lines of the framework's section."""
    with framework:
        return rows_of(framework)


def rows_of(framework: Framework) -> list[str]:
    dtypes_of: dict[tuple[str, ...], list[str]] = {}  # by what works with them
    for dtype, native in framework.dtypes().items():
        found = ways_that_work(framework, dtype, native)
        cells = (" ".join(way for way in framework.ways if way in found[name]) for name in OPERATIONS)
        dtypes_of.setdefault(tuple(cells), []).append(dtype)
    rows = [["", *OPERATIONS], ["---"] * (1 + len(OPERATIONS))]
    rows += [[", ".join(dtypes), *cells] for cells, dtypes in dtypes_of.items()]
    legend = ", ".join(f"{letter}: {name}" for letter, name in framework.ways.items())
    return [f"## {framework.title}", "", legend, "", *(f"| {' | '.join(row)} |" for row in rows)]


def section(page: str, title: str) -> str:
    """That of this title, without the lines around it."""
    _, _, rest = page.partition(f"{title}\n")
    return f"{title}\n{rest.partition('## ')[0]}".strip()


def main() -> None:
    hvd.init()
    assert hvd.size() == SIZE
    lines = table(FRAMEWORKS[sys.argv[1]]())
    assert hvd.allgather_object(lines) == [lines] * SIZE
    if hvd.rank() != 0:
        return
    if sys.argv[2:]:
        path = Path(sys.argv[2])
        page = path.read_text()
        path.write_text(page.replace(section(page, lines[0]), "\n".join(lines)))
    else:
        print(*lines, sep="\n", flush=True)


if __name__ == "__main__":
    main()
