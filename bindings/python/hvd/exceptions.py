"""Exceptions of hvd. A call that is wrong by itself raises ValueError; these are for what happens between processes."""


class HorovodInternalError(RuntimeError):
    """An operation failed: a rank was lost, ranks disagreed about it, a deadline passed, or the runtime was shut down.

    The text names the operation and, where there are any, the ranks and hosts at fault. The name is Horovod's, which
    training scripts catch.
    """
