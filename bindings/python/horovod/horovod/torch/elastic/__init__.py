"""See `hvd.torch.elastic`."""

from hvd.torch.elastic import ElasticSampler, TorchState, run

__all__ = ["ElasticSampler", "TorchState", "run"]
