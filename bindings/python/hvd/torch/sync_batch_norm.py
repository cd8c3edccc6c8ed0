"""Batch normalisation over the batches of all ranks."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.modules.batchnorm import _BatchNorm

from hvd import basics
from hvd.handles import synchronize
from hvd.reduce_op import Sum
from hvd.torch.collectives import allgather_async, allreduce_async_


class SyncBatchNorm(_BatchNorm):
    """Normalises with the mean and variance of all ranks' batches together. Made and used like `torch.nn.BatchNorm1d`,
    `2d` and `3d`, on the CPU or a GPU.

    In training mode every rank must call it, as often and in the same order as other layers; batches may be of
    different sizes, also empty. The gradients of weight and bias are those of this rank's batch, as elsewhere. In
    evaluation mode, and on a rank that is alone, it does what those do.

    Inputs have the shape [N, num_features, ...] and a floating-point dtype; statistics are taken in float32 at least.
    The output has the input's shape and dtype.

    Args:
        num_features: channels, the input's second dimension.
        eps: added to the variance.
        momentum: weight of a new batch in the running statistics; None: all batches have the same weight.
        affine: whether there are a weight and a bias.
        track_running_stats: whether there are running statistics; without them each rank normalises its
            batches in evaluation mode with their own statistics.

    Raises:
        ValueError: in a call: an input of another shape; in training mode also one value per channel on all ranks
            together, of which there is no variance.
        HorovodInternalError: in a call in training mode, and its backward pass: a rank was lost, or does not call it.
    """

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        **factory: Any,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats, **factory)

    def _check_input_dim(self, input: torch.Tensor) -> None:
        if input.dim() < 2 or input.size(1) != self.num_features:
            raise ValueError(f"expected an input of shape [N, {self.num_features}, ...], not {tuple(input.shape)}")

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """A tensor of the input's shape, [N, num_features, ...], and dtype."""
        self._check_input_dim(input)
        if not self.training or basics.size() == 1:
            return super().forward(input)
        output, mean, variance, count = _SyncBatchNorm.apply(input, self.weight, self.bias, self.eps)
        if self.track_running_stats:
            self._follow(mean, variance, count)
        return output

    @torch.no_grad()
    def _follow(self, mean: torch.Tensor, variance: torch.Tensor, count: torch.Tensor) -> None:
        """Running statistics, if there are any: of the unbiased variance, as PyTorch's."""
        if self.running_mean is None or self.running_var is None or self.num_batches_tracked is None:
            return
        self.num_batches_tracked.add_(1)
        weight = 1.0 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
        self.running_mean.lerp_(mean.to(self.running_mean.dtype), weight)
        self.running_var.lerp_((variance * count / (count - 1)).to(self.running_var.dtype), weight)

    @classmethod
    def convert_sync_batchnorm(cls, module: torch.nn.Module) -> torch.nn.Module:
        """The module with this layer in place of each of PyTorch's batch normalisations, and their parameters and
        statistics. Local: call it on every rank, before the optimizer is made."""
        if isinstance(module, _BatchNorm) and not isinstance(module, cls):
            converted = cls(module.num_features, module.eps, module.momentum, module.affine, module.track_running_stats)
            converted.weight, converted.bias = module.weight, module.bias
            converted.running_mean, converted.running_var = module.running_mean, module.running_var
            converted.num_batches_tracked = module.num_batches_tracked
            converted.training = module.training
            return converted
        for name, child in module.named_children():
            setattr(module, name, cls.convert_sync_batchnorm(child))
        return module


def _per_channel(values: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    return values.view(1, -1, *[1] * (like.dim() - 2))


class _SyncBatchNorm(torch.autograd.Function):
    """Statistics and sums are of float32 at least. Each direction is one collective of a few numbers per channel."""

    @staticmethod
    def forward(
        ctx: Any, input: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None, eps: float
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        mean, variance, count = _statistics_of_all(input)
        inverse = torch.rsqrt(variance + eps)
        scale = inverse if weight is None else inverse * weight
        shift = -mean * scale if bias is None else bias - mean * scale
        exact = input.to(mean.dtype)
        output = (exact * _per_channel(scale, input) + _per_channel(shift, input)).to(input.dtype)
        ctx.save_for_backward(input, weight, bias, mean, inverse, count)
        ctx.mark_non_differentiable(mean, variance, count)
        return output, mean, variance, count

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor, *_: object) -> tuple[torch.Tensor | None, ...]:
        input, weight, bias, mean, inverse, count = ctx.saved_tensors
        dimensions = [0, *range(2, input.dim())]
        exact = gradient.to(mean.dtype)
        normal = (input.to(mean.dtype) - _per_channel(mean, input)) * _per_channel(inverse, input)
        own = torch.stack([exact.sum(dimensions), (exact * normal).sum(dimensions)])
        of_input = None
        if ctx.needs_input_grad[0]:
            sums = synchronize(allreduce_async_(own.clone(), op=Sum)) / count
            scale = inverse if weight is None else inverse * weight
            centred = exact - _per_channel(sums[0], input) - normal * _per_channel(sums[1], input)
            of_input = (centred * _per_channel(scale, input)).to(input.dtype)
        of_weight = own[1].to(weight.dtype) if ctx.needs_input_grad[1] else None
        of_bias = own[0].to(bias.dtype) if ctx.needs_input_grad[2] else None
        return of_input, of_weight, of_bias, None


def _statistics_of_all(input: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Mean and biased variance of each channel over all ranks' batches, and how many values each channel has.

    Means and sums of squared distances from them are gathered and put together, which does not cancel where a sum of
    squares does.
    """
    dtype = input.dtype if input.dtype is torch.float64 else torch.float32
    rows = input.transpose(0, 1).flatten(1).to(dtype)
    count = rows.size(1)
    mean = rows.sum(1) / max(count, 1)
    spread = (rows - mean.unsqueeze(1)).square().sum(1)
    own = torch.cat([mean.new_tensor([count]), mean, spread])
    counts, means, spreads = synchronize(allgather_async(own.unsqueeze(0))).split([1, len(mean), len(mean)], dim=1)
    total = counts.sum()
    if total <= 1:
        raise ValueError(f"more than one value per channel is needed in training, but all ranks together have {total}")
    mean = (means * counts).sum(0) / total
    between = ((means - mean).square() * counts).sum(0)
    return mean, (spreads.sum(0) + between) / total, total
