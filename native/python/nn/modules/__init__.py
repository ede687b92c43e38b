from .affine import Affine
from .correlate import Correlate2d
from .depthwise_conv import DepthwiseConv2d
from .improved_triplet_loss import ImprovedTripletLoss
from .roi_pool import RoIPool


__all__ += ["Affine", "Correlate2d", "DepthwiseConv2d", "ImprovedTripletLoss", "RoIPool"]
