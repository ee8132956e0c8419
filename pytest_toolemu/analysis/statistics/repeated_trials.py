"""Metrics over repeated trials of one case."""

from __future__ import annotations

from math import comb


def pass_at_k(n: int, passed: int, k: int) -> float | None:
    """Estimate the probability that at least one of k trials passes, without bias, from n trials.

    Chen et al. 2021, equation 1. None if there are fewer than k trials. ValueError for k below 1.
    """
    if k < 1:
        raise ValueError(f"k is {k}, expected at least 1")
    return 1 - comb(n - passed, k) / comb(n, k) if k <= n else None


def pass_hat_k(n: int, passed: int, k: int) -> float | None:
    """Estimate pass^k, the probability that all of k trials pass, without bias, from n trials.

    Yao et al. 2024 (tau-bench). None if there are fewer than k trials. ValueError for k below 1.
    """
    if k < 1:
        raise ValueError(f"k is {k}, expected at least 1")
    return comb(passed, k) / comb(n, k) if k <= n else None


def flakiness(n: int, passed: int) -> float | None:
    """Estimate the probability that two trials of the case disagree, without bias; None for fewer than two trials."""
    return 2 * passed * (n - passed) / (n * (n - 1)) if n > 1 else None
