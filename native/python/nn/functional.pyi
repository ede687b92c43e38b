from torch import depthwise_conv2d as depthwise_conv2d

__all__ += ["depthwise_conv2d"]
