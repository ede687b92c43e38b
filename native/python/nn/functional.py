depthwise_conv2d = torch.depthwise_conv2d
