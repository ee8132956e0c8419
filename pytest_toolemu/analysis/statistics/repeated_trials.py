"""Several trials of one case: what they say together."""

from __future__ import annotations

from math import comb


def pass_at_k(n: int, passed: int, k: int) -> float | None:
    """Chance that at least one of k trials passes, estimated without bias from n (Chen et al. 2021, equation 1).

    None when there are fewer than k trials. ValueError for k below 1.
    """
    if k < 1:
        raise ValueError(f"k is {k}, expected at least 1")
    return 1 - comb(n - passed, k) / comb(n, k) if k <= n else None


def pass_hat_k(n: int, passed: int, k: int) -> float | None:
    """Chance that all of k trials pass, pass^k, estimated without bias from n (Yao et al. 2024, tau-bench).

    None when there are fewer than k trials. ValueError for k below 1.
    """
    if k < 1:
        raise ValueError(f"k is {k}, expected at least 1")
    return comb(passed, k) / comb(n, k) if k <= n else None


def flakiness(n: int, passed: int) -> float | None:
    """Chance that two different trials of the case disagree, estimated without bias; None for fewer than two."""
    return 2 * passed * (n - passed) / (n * (n - 1)) if n > 1 else None
