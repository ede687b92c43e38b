from .depthwise_conv import DepthwiseConv2d

__all__ += ["DepthwiseConv2d"]
