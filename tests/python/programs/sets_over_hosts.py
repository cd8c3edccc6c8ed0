"""Process sets whose ranks are on several hosts: each sums what its own ranks have, all at once, many times."""

import numpy as np

import hvd

evens, odds = hvd.ProcessSet([0, 2]), hvd.ProcessSet([1, 3])
hvd.init(process_sets=[evens, odds])
assert hvd.size() == 4
assert hvd.local_size() == 2 and hvd.cross_size() == 2
own = evens if hvd.rank() % 2 == 0 else odds
mine = np.float32(hvd.rank() + 1)
for step in range(100):
    count = 1 + 1000 * (step % 7)
    of_all = hvd.allreduce_async(np.full(count, mine), op=hvd.Sum, name=f"all.{step % 7}")
    of_own = hvd.allreduce(np.full(count, mine), op=hvd.Sum, name=f"own.{step % 7}", process_set=own)
    assert (of_own == sum(rank + 1 for rank in own.ranks)).all()
    assert (hvd.synchronize(of_all) == 10).all()
gathered = hvd.allgather(np.array([hvd.rank()]), process_set=own)
assert gathered.tolist() == own.ranks
hvd.shutdown()
print("right", flush=True)
