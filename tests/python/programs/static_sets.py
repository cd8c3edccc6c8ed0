"""Process sets that are given to init."""

import os

import arrays
import hvd
from hvd.exceptions import HorovodInternalError

try:
    hvd.init(process_sets=[[int(os.environ["HVD_RANK"]) % 2]])
except (HorovodInternalError, ValueError) as error:  # it is both
    assert isinstance(error, HorovodInternalError) and isinstance(error, ValueError), error
    assert "alike" in str(error), error
else:
    raise AssertionError("ranks with different process sets were put up with")
hvd.shutdown()

evens, odds = hvd.ProcessSet([0, 2]), hvd.ProcessSet([1, 3])
hvd.init(process_sets=[evens, odds])
own = evens if hvd.rank() % 2 == 0 else odds
assert (evens.process_set_id, odds.process_set_id) == (1, 2)
total = arrays.allreduce([float(hvd.rank())], op=arrays.Sum, process_set=own.process_set_id)
assert total.item() == (2, 4)[hvd.rank() % 2]
hvd.shutdown()
assert own.process_set_id is None and own.included() is None and own.size() is None
hvd.init(process_sets="dynamic")
assert hvd.add_process_set(own.ranks if own is evens else [0, 2]).process_set_id == 1
print("sets are right")
hvd.shutdown()
