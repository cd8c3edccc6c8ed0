"""hvd under Horovod's name, so that scripts written for Horovod run unchanged:

>>> import horovod.torch as hvd

What these modules offer is hvd's own; docs/horovod.md says where it differs from Horovod's.
"""

from __future__ import annotations

from importlib import metadata

from horovod.runner import run

__version__ = "0.28.1"  # the Horovod whose interface this is; hvd's own version is hvd.__version__

__all__ = ["__version__", "run"]


def _refuse_a_second_owner() -> None:
    """Both would write into one folder: whatever came of it is neither of them."""
    try:
        other = metadata.distribution("horovod")
    except metadata.PackageNotFoundError:
        return
    files = other.files
    # One without files of this name stands for another package's requirement, and is in nobody's way.
    if files is not None and not any(file.parts[0] == "horovod" for file in files):
        return
    raise ImportError(
        f"the package horovod belongs to two distributions: horovod {other.version} and hvd-horovod. Uninstall both "
        "(pip uninstall horovod hvd-horovod), and then install the one that you want"
    )


_refuse_a_second_owner()
