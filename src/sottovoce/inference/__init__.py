"""Confidence intervals under privacy: estimates from noisy sums, with standard errors that count the noise.

`statistics` are the sums and their sensitivities, `models` slopes and curvatures, `estimate` the procedures,
`hazard` sums and procedure of the hazard, `survival` curves of counts, `requirements` how many records are enough,
`table` what is printed.
"""

from sottovoce.inference.table import CoefficientTable

__all__ = ["CoefficientTable"]
