"""How the tasks, actors or pods of somebody else's engine (Spark, Ray) become the ranks of a job.

The engine places processes and starts them. There are two ways from there on:

- `joined`, `call`, `results`: the engine's own processes are the ranks. The engine broadcasts rank 0's rendezvous info
  to the others, and they talk to each other as in every job. Nothing is started: it takes milliseconds.
- `Place`, `PlacesJob`: each of the engine's processes keeps a place for ranks, where an agent of hvdrun listens. hvdrun
  runs in the driver and starts the ranks there, as on any host: elastic membership, `hvd top` and `hvd stacks`, output
  by rank, and the report of who failed first are the same.

A process of an engine outlives its task, so hvd is left however the function ends, and a function that fails tells the
others why: their operations fail with that cause, in whatever order the processes end.
"""

from hvd.cluster.joining import call, joined, member, results
from hvd.cluster.places import JobToken, Place, PlaceAddress, Places, PlacesJob

__all__ = ["JobToken", "Place", "PlaceAddress", "Places", "PlacesJob", "call", "joined", "member", "results"]
