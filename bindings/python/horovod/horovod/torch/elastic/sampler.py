"""See `hvd.torch.elastic`."""

from hvd.torch.elastic import ElasticSampler

__all__ = ["ElasticSampler"]
