"""Run by every Python process of the tests at its start, since this folder is in PYTHONPATH (conftest.py). Prevents
frameworks from importing optional packages that no test needs in them, which takes a third of the time of importing
TensorFlow. A test or an example can still import these packages itself."""

import sys

IMPORTERS = {  # by package: the modules for which it looks as if it were not installed
    "jax": ("tensorflow.lite.", "keras.src.callbacks."),
    "matplotlib": ("keras.src.",),
    "pandas": ("keras.src.", "tf_keras.src."),
    "scipy": ("tf_keras.src.",),
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


sys.meta_path.insert(0, Absent)
