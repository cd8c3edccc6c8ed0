"""Arrays of any library, as the runtime needs to know them, and arrays made of what it returns.

`kind_of(array)` decides by the array's class. The module for a library is imported when the first of its arrays comes,
which is after the library itself: hvd imports none.
"""

from hvd.arrays.kinds import Kind, Memory, kind_of

__all__ = ["Kind", "Memory", "kind_of"]
