from .affine import Affine
from .improved_triplet_loss import ImprovedTripletLoss


__all__ += ["Affine", "ImprovedTripletLoss"]
