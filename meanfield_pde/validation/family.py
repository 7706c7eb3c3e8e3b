"""Many statistics, one level: the distribution of the largest of them, from own runs and from the central limit."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import log_ndtr, ndtr, ndtri

from meanfield_pde.arrays import FloatArray

# normal draws by which the largest of correlated statistics is judged: 1e5 know a level of .05 to .0007
DRAWS, SEED = 100_000, 1
# fewer draws beyond a value say less about its probability than the union bound
FEW = 50
LOG2 = float(np.log(2.0))


@dataclass(frozen=True, slots=True)
class Family:
    """Statistics, each with its p-value adjusted for all of them; ``p``, the least, is that of the family."""

    adjusted: FloatArray

    @property
    def p(self) -> float:
        """Probability, where nothing is wrong, that any of the statistics is as extreme as the most extreme one."""
        return float(self.adjusted.min())


def two_sided(z: FloatArray) -> FloatArray:
    """−log of the two-sided normal p-value: the common scale on which statistics are compared."""
    return np.asarray(-(LOG2 + log_ndtr(-np.abs(z))))


def upper(values: FloatArray) -> FloatArray:
    """−log of the upper normal p-value of log(values), standardised over the rows (n, K), all rows alike."""
    logs = np.log(np.maximum(values, np.finfo(float).tiny))
    spread = logs.std(axis=0)
    z = np.divide(logs - logs.mean(axis=0), spread, out=np.zeros_like(logs), where=spread > 0)
    return np.asarray(-log_ndtr(-z))


def by_rank(scores: FloatArray) -> Family:
    """The family of row 0 of scores (1 + M, K), larger is more extreme; the M other rows are what chance makes.

    Formula: adjusted_j = #{rows i: max_k scores_ik ≥ scores_0j}/(1 + M), row 0 counted: exact at every level that is a
    multiple of 1/(1 + M) if all rows are exchangeable, whatever the scores.
    Source: Westfall and Young 1993 (single-step maxT); Barnard 1963 (Monte Carlo tests).
    """
    largest = scores.max(axis=1)
    return Family((largest[:, None] >= scores[0]).mean(axis=0))


@dataclass(frozen=True, slots=True)
class NormalMaximum:
    """The law of max_j |Z_j| for normal Z of a given correlation: fixed draws (n, K), their maxima sorted (n,)."""

    draws: FloatArray
    largest: FloatArray

    def adjusted(self, z: FloatArray) -> Family:
        """The family of z (K,); far out, where few draws are, by the union bound K P(|Z| ≥ |z|), never too small."""
        n = len(self.largest)
        beyond = n - np.searchsorted(self.largest, np.abs(z))
        union = np.minimum(1.0, len(z) * 2.0 * ndtr(-np.abs(z)))
        return Family(np.where(beyond >= FEW, beyond / n, np.minimum(union, FEW / n)))

    def critical(self, level: float) -> float:
        """c with P(max |Z| > c) = level."""
        return float(np.quantile(self.largest, 1.0 - level))

    def power(self, shift: FloatArray, level: float) -> float:
        """P(max |Z + shift| > c): how often a fault that shifts the statistics by so many deviations is seen."""
        return float((np.abs(self.draws + shift).max(axis=1) > self.critical(level)).mean())

    def smallest(self, shift: FloatArray, level: float, power: float) -> float:
        """The factor on ``shift`` at which the power is reached; inf if the shift is 0. Found to 1 part in 1000."""
        size = float(np.abs(shift).max())
        if not size > 0.0:
            return float("inf")
        # one statistic alone would need about so much
        low, high = 0.0, (self.critical(level) + float(ndtri(power))) / size
        while self.power(high * shift, level) < power:
            low, high = high, 2.0 * high
        while high - low > 1e-3 * high:
            middle = 0.5 * (low + high)
            low, high = (middle, high) if self.power(middle * shift, level) < power else (low, middle)
        return high


def normal_maximum(covariance: FloatArray) -> NormalMaximum:
    """The law of the largest |Z| for a covariance (K, K); statistics without variance count as 0."""
    scale = np.sqrt(np.diag(covariance))
    safe = np.where(scale > 0, scale, 1.0)
    values, vectors = np.linalg.eigh(covariance / np.outer(safe, safe))
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    normal = np.random.default_rng(SEED).standard_normal((DRAWS, len(scale)))
    draws = normal @ root.T
    return NormalMaximum(draws, np.sort(np.abs(draws).max(axis=1)))
