from .affine import Affine
from .improved_triplet_loss import ImprovedTripletLoss
from .roi_pool import RoIPool


__all__ += ["Affine", "ImprovedTripletLoss", "RoIPool"]
