from torch.gr_package.constant import ANSWER


__all__ = ["ANSWER"]
