"""As scipy.spatial: see `blasd.spatial.distance`."""
from . import distance

__all__ = ["distance"]
