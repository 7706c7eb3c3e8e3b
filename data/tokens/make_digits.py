"""Writes digits_01.npz beside this file: python data/tokens/make_digits.py (needs scikit-learn, only for this).

Source: E. Alpaydin and C. Kaynak, Optical Recognition of Handwritten Digits, UCI Machine Learning Repository (1998),
doi:10.24432/C50P49, licence CC BY 4.0, in the copy of its test set that scikit-learn ships (``load_digits``).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits


def main() -> None:
    """Keep the images of 0 and 1 in their order and turn each into its column profile on [-1, 1]."""
    digits = load_digits()
    kept = digits.target < 2
    images = digits.images[kept].astype(np.uint8)
    # pixels are whole numbers 0..16, so the sums are exact and only the division rounds
    columns = images.sum(axis=1, dtype=np.int64)
    np.savez_compressed(
        Path(__file__).with_name("digits_01.npz"),
        points=(np.arange(8)[:, None] + 0.5) / 4.0 - 1.0,
        weights=columns / columns.sum(axis=1, keepdims=True),
        labels=digits.target[kept].astype(np.int64),
        images=images,
    )


if __name__ == "__main__":
    main()
