"""SyncBatchNorm: what one process computes from the batches of all ranks."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import hvd.torch as hvd

pytestmark = pytest.mark.ranks

CHANNELS = 3
SHAPES = {"2d": (), "3d": (4,), "4d": (3, 2), "5d": (2, 1, 3)}
LAYERS = {2: nn.BatchNorm1d, 3: nn.BatchNorm1d, 4: nn.BatchNorm2d, 5: nn.BatchNorm3d}


def batches(step: int, inner: tuple[int, ...], uneven: bool, dtype: torch.dtype) -> list[torch.Tensor]:
    """By rank. Far from zero, so that a variance made of sums of squares would show."""
    generator = torch.Generator().manual_seed(step)
    lengths = [(rank * 2) % 5 if uneven and hvd.size() > 1 else 3 for rank in range(hvd.size())]
    return [torch.randn(n, CHANNELS, *inner, generator=generator).mul(2).add(50).to(dtype) for n in lengths]


def trained(layer: nn.Module, options: dict) -> nn.Module:
    if options.get("affine", True):
        with torch.no_grad():
            layer.weight.copy_(torch.tensor([1.0, 2.0, 0.5])), layer.bias.copy_(torch.tensor([0.0, 1.0, -1.0]))
    return layer


def assert_like_one_process(inner, options, uneven=False, dtype=torch.float64, tolerance=1e-9):
    one = trained(LAYERS[len(inner) + 2](CHANNELS, **options), options).to(dtype)
    sync = trained(hvd.SyncBatchNorm(CHANNELS, **options), options).to(dtype)
    for step in range(3):
        parts = batches(step, inner, uneven, dtype)
        whole = torch.cat(parts).requires_grad_()
        mine = parts[hvd.rank()].clone().requires_grad_()
        first = sum(len(part) for part in parts[: hvd.rank()])
        weights = torch.randn(whole.shape, generator=torch.Generator().manual_seed(step + 100)).to(dtype)
        own = slice(first, first + len(mine))
        expected, result = one(whole), sync(mine)
        assert result.dtype is dtype
        torch.testing.assert_close(result, expected[own], rtol=tolerance, atol=tolerance)
        (expected * weights).sum().backward()
        (result * weights[own]).sum().backward()
        torch.testing.assert_close(mine.grad, whole.grad[own], rtol=tolerance, atol=tolerance)
    for parameter, reference in zip(sync.parameters(), one.parameters()):
        gradient = hvd.allreduce(parameter.grad, op=hvd.Sum)
        torch.testing.assert_close(gradient, reference.grad, rtol=tolerance, atol=tolerance)
    for statistic, reference in zip(sync.buffers(), one.buffers()):
        torch.testing.assert_close(statistic, reference, rtol=tolerance, atol=tolerance)
    one.eval(), sync.eval()
    if options.get("track_running_stats", True):
        torch.testing.assert_close(sync(mine), one(mine), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("uneven", [False, True], ids=["even", "uneven"])
@pytest.mark.parametrize("shape", SHAPES)
def test_shapes(shape, uneven):
    assert_like_one_process(SHAPES[shape], {}, uneven)


@pytest.mark.parametrize(
    "options",
    [{"momentum": None}, {"momentum": 0.3}, {"affine": False}, {"track_running_stats": False}, {"eps": 0.1}],
    ids=str,
)
def test_options(options):
    assert_like_one_process((3, 2), options)


def test_float32_far_from_zero():
    assert_like_one_process((3, 2), {}, dtype=torch.float32, tolerance=2e-4)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_16_bit_inputs(dtype):
    layer = hvd.SyncBatchNorm(CHANNELS)
    mine = torch.randn(8, CHANNELS, generator=torch.Generator().manual_seed(hvd.rank())).to(dtype).requires_grad_()
    result = layer(mine)
    result.float().square().sum().backward()
    assert result.dtype is dtype and mine.grad.dtype is dtype and layer.running_mean.dtype is torch.float32
    everything = hvd.allgather(result.detach().float())
    torch.testing.assert_close(everything.mean(0), torch.zeros(CHANNELS), atol=0.02, rtol=0)


def test_channels_last_and_frozen_parts():
    layer = hvd.SyncBatchNorm(CHANNELS).double()
    layer.weight.requires_grad_(False)
    image = torch.randn(2, CHANNELS, 4, 5, dtype=torch.float64).to(memory_format=torch.channels_last)
    result = layer(image)
    result.sum().backward()
    assert result.is_contiguous(memory_format=torch.channels_last)
    assert layer.weight.grad is None and layer.bias.grad.tolist() == [40.0] * CHANNELS


@pytest.mark.parametrize("shape", [(4,), (2, CHANNELS + 1), (2, CHANNELS + 1, 3)], ids=str)
def test_wrong_inputs(shape):
    with pytest.raises(ValueError, match="expected"):
        hvd.SyncBatchNorm(CHANNELS)(torch.ones(shape))


def test_too_few_values():
    given = torch.ones(1 if hvd.rank() == 0 else 0, CHANNELS)
    with pytest.raises(ValueError, match=r"more than (one|1) value per channel"):
        hvd.SyncBatchNorm(CHANNELS)(given)


def test_conversion():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Sequential(nn.BatchNorm2d(4, affine=False)))
    model(torch.randn(2, 1, 5, 5))
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    weight = model[1].weight
    model.eval()
    converted = hvd.SyncBatchNorm.convert_sync_batchnorm(model)
    assert converted is model and isinstance(model[1], hvd.SyncBatchNorm) and isinstance(model[2][0], hvd.SyncBatchNorm)
    assert model[1].weight is weight and not model[1].training and model[2][0].weight is None
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    assert isinstance(hvd.SyncBatchNorm.convert_sync_batchnorm(nn.BatchNorm1d(2)), hvd.SyncBatchNorm)
