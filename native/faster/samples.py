"""Where this folder's results differ from PyTorch's."""

_ORDER = "depthwise convolutions are sums in another order"

DIFFERS = {"nn.functional.conv1d": _ORDER, "nn.functional.conv2d": _ORDER}
