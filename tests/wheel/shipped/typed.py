"""Calls of the shipped operators and modules: type checkers must accept the valid ones, and reject the marked ones."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from typing_extensions import assert_type

x = torch.ones(2, 3)
images = torch.ones(1, 3, 8, 8)

assert_type(torch.gdh(x), Tensor)
assert_type(x.gdh(), Tensor)
torch.gdh(x, x)  # error
x.gdh(1)  # error

assert_type(torch.twice_plus(x, x), Tensor)
assert_type(torch.twice_plus(input=x, other=x, out=torch.empty(2, 3)), Tensor)
assert_type(x.twice_plus(other=x).twice_plus_(x), Tensor)
torch.twice_plus(x)  # error
torch.twice_plus(x, 2)  # error
torch.twice_plus(x, x, x)  # error
torch.twice_plus(x, x, out="x")  # error
x.twice_plus()  # error
x.twice_plus_(x, out=x)  # error

assert_type(torch.mul_constant(x, 2), Tensor)
assert_type(torch.mul_constant(x, 0.5, out=torch.empty(2, 3)), Tensor)
assert_type(x.mul_constant(2j).mul_constant_(True), Tensor)
torch.mul_constant(x, "2")  # error
x.mul_constant_(None)  # error

assert_type(torch.affine(x, torch.ones(5, 3)), Tensor)
assert_type(torch.affine(x, torch.ones(5, 3), bias=None), Tensor)
assert_type(F.affine(x, torch.ones(5, 3), torch.ones(5)), Tensor)
torch.affine(x, torch.ones(5, 3), 1.0)  # error
F.affine(x, weight=3)  # error
nn.Affine(3, 5, bias=False, dtype=torch.double)
nn.Affine(3)  # error
nn.Affine(3, "5")  # error

assert_type(torch.depthwise_conv2d(images, torch.ones(3, 1, 3, 3), None, 1, (1, 1), dilation=[1, 1]), Tensor)
assert_type(F.depthwise_conv2d(images, torch.ones(3, 1, 3, 3)), Tensor)
assert_type(torch.depthwise_conv2d(images, torch.ones(3, 1, 3, 3), padding="same"), Tensor)
torch.depthwise_conv2d(images, torch.ones(3, 1, 3, 3), stride="1")  # error
torch.depthwise_conv2d(images, torch.ones(3, 1, 3, 3), groups=3)  # error
nn.DepthwiseConv2d(3)
nn.DepthwiseConv2d(3, (3, 5), padding=1)
nn.DepthwiseConv2d(3, padding="same", padding_mode="reflect")
assert_type(nn.DepthwiseConv2d.from_conv2d(nn.Conv2d(3, 3, 3, groups=3)), nn.DepthwiseConv2d)
nn.DepthwiseConv2d()  # error
nn.DepthwiseConv2d(3, padding=None)  # error
nn.DepthwiseConv2d(3, 3, groups=3)  # error

assert_type(torch.improved_triplet_loss(x, x, x), Tensor)
assert_type(torch.improved_triplet_loss(x, x, x, -1.0, 0.01, 0.5, reduction="sum"), Tensor)
assert_type(F.improved_triplet_loss(x, x, x, tau1=-1, reduction="sum"), Tensor)
torch.improved_triplet_loss(x, x, x, -1.0, 0.01, 0.5, reduction=2)  # error
F.improved_triplet_loss(x, x)  # error
F.improved_triplet_loss(x, x, x, reduction=1)  # error
nn.ImprovedTripletLoss(beta=0.5)
nn.ImprovedTripletLoss(reduction=1)  # error

assert_type(torch.roi_pool(images, x, 1.0, 2, 3), Tensor)
assert_type(F.roi_pool(images, x, (2, 3), spatial_scale=0.5), Tensor)
assert_type(torch.roi_pool_with_indices(images, x, 1.0, 2, 3).indices, Tensor)
torch.roi_pool(images, x, 1.0, 2.5, 3)  # error
assert_type(torch.roi_pool_with_indices(images, x, 1.0, 2, 3).places, Tensor)  # error
F.roi_pool(images, [x, x], 2)
F.roi_pool(images, x)  # error
nn.RoIPool(2, spatial_scale=0.5)
nn.RoIPool()  # error

assert_type(torch.correlate2d(x, x, mode="same"), Tensor)
assert_type(torch.correlate2d(x, x, mode="same", boundary="fill", fillvalue=0.5), Tensor)
torch.correlate2d(x, x, None, "same")  # error
torch.correlate2d(x, x, mode=1)  # error
nn.Correlate2d((3, 4), mode="same", boundary="wrap", fillvalue=2j, bias=False, num_kernels=3)
nn.Correlate2d()  # error

# Like other names in torch.fft it has no type: that module is a Python wrapper without a stub.
torch.fft.rfft2_abs(x)
