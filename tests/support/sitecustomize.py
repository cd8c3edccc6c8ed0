"""Run by every Python process of the tests at its start, since this folder is in PYTHONPATH (conftest.py). Prevents
frameworks from importing what no test needs in them, which takes two fifths of the time of importing TensorFlow, and
more than half of what PyTorch and its optimizers import. A test or an example can still import these packages itself.
"""

import functools
import gc
import importlib
import importlib.machinery
import os
import sys

IMPORTERS = {  # by package: the modules for which it looks as if it were not installed
    "h5py": ("tensorflow.python.keras.",),
    "jax": ("tensorflow.lite.", "keras.src.callbacks."),
    "matplotlib": ("keras.src.",),
    "pandas": ("keras.src.", "tf_keras.src.", "sklearn."),
    "requests": ("tensorflow.python.keras.",),
    "scipy": ("tensorflow.python.keras.", "tf_keras.src."),
    "sklearn": ("keras.src.",),
}


class Absent:
    """A finder (importlib.abc.MetaPathFinder) that precedes the real ones."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        importers = IMPORTERS.get(name)
        if importers is not None and importing_module().startswith(importers):
            raise ModuleNotFoundError(f"{name} is kept from this module in tests (sitecustomize.py)", name=name)
        return None


def importing_module() -> str:
    frame = sys._getframe(2)
    while frame is not None and frame.f_code.co_filename.startswith("<frozen importlib"):
        frame = frame.f_back
    return frame.f_globals.get("__name__", "") if frame is not None else ""


class TritonFirst:
    """A finder that has Triton, which PyTorch from PyPI brings along and its compiler imports, be imported before
    TensorFlow: the two have an LLVM each, and the process crashes where Triton's is loaded second."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == "tensorflow" and importlib.machinery.PathFinder.find_spec("triton"):
            importlib.import_module("triton")
        return None


# By module of PyTorch: a decorator whose functions import PyTorch's compiler at their first call, in two seconds, to
# tell it what not to compile. An optimizer's first step is such a call.
DECORATORS = {"torch._compile": "_disable_dynamo", "torch.optim.optimizer": "_use_grad_for_differentiable"}


class WithoutDynamo:
    """A finder of these modules. What they decorate does without the compiler until somebody else imports it."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        if name not in DECORATORS:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        execute = spec.loader.exec_module

        def exec_module(module):
            execute(module)
            decorator, is_of_optimizers = DECORATORS[name], name == "torch.optim.optimizer"
            setattr(module, decorator, only_with_dynamo(getattr(module, decorator), is_of_optimizers))

        spec.loader.exec_module = exec_module
        return spec


class WithoutMetas:
    """A finder. As it is imported, PyTorch registers what its compiler and distributed tensors have to know of each
    operator, which takes two fifths of the time. Those that need it import torch._decomp, which registers it then."""

    METAS = "torch._meta_registrations"
    DECOMPOSITIONS = "torch._decomp"
    left_out = False

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name == cls.METAS and importing_module() == "torch":
            cls.left_out = True
            return importlib.machinery.ModuleSpec(name, cls)
        if name == cls.DECOMPOSITIONS and cls.left_out:
            cls.left_out = False
            return importlib.machinery.ModuleSpec(name, cls)
        if name == "torch._dynamo":
            importlib.import_module(cls.DECOMPOSITIONS)
        return None

    @staticmethod
    def create_module(spec):
        return None

    @classmethod
    def exec_module(cls, module):
        """Leaves it empty, or has it replaced: the two import each other, and the metas have to come first."""
        if module.__name__ == cls.DECOMPOSITIONS:
            del sys.modules[cls.DECOMPOSITIONS], sys.modules[cls.METAS]
            importlib.import_module(cls.METAS)
        elif set_metaclass := getattr(sys.modules["torch"]._C, "_set_generator_metaclass", None):
            # Without it, which what is left out does as well, PyTorch 2.13 makes no torch.Generator.
            set_metaclass(importlib.import_module("torch._opaque_base").OpaqueBaseMeta)


def only_with_dynamo(decorator, is_of_optimizers):
    def decorate(function=None, *arguments, **options):
        if function is None:
            return functools.partial(decorate, *arguments, **options)
        decorated = decorator(function, *arguments, **options)

        @functools.wraps(function)
        def call(*args, **kwargs):
            if "torch._dynamo" in sys.modules:
                return decorated(*args, **kwargs)
            if not is_of_optimizers:
                return function(*args, **kwargs)
            # A step, of which only differentiable optimizers record gradients.
            with sys.modules["torch"].set_grad_enabled(args[0].defaults["differentiable"]):
                return function(*args, **kwargs)

        return call

    return decorate


# Frameworks make millions of objects that live as long as the process. Looking through them for garbage after every 700
# new ones takes a tenth of the time of a job with many tests.
gc.set_threshold(50_000, 20, 100)
sys.meta_path[:0] = [Absent, TritonFirst]
if "TEST_COMPILES" not in os.environ:  # a job of many tests (python/conftest.py), some of which compile
    sys.meta_path[:0] = [WithoutDynamo, WithoutMetas]
