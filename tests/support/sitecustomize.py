"""Run by every Python process of the tests when it starts, for this folder is in PYTHONPATH (conftest.py). Keeps
frameworks from importing what they use if it is there, and no test has them use: a third of the time that TensorFlow
takes to be imported. What a test or an example imports itself is there as ever."""

import sys

IMPORTERS = {  # by package: the modules that are told that it is not installed
    "jax": ("tensorflow.lite.", "keras.src.callbacks."),
    "matplotlib": ("keras.src.",),
    "pandas": ("keras.src.", "tf_keras.src."),
    "scipy": ("tf_keras.src.",),
    "sklearn": ("keras.src.",),
}


class Absent:
    """A finder (importlib.abc.MetaPathFinder) that comes before the real ones."""

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


sys.meta_path.insert(0, Absent)
