"""Writes digits_01.npz and digits_012.npz beside this file: python data/tokens/make_digits.py (needs scikit-learn).

Source: E. Alpaydin and C. Kaynak, Optical Recognition of Handwritten Digits, UCI Machine Learning Repository (1998),
doi:10.24432/C50P49, licence CC BY 4.0, in the copy of its test set that scikit-learn ships (``load_digits``).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

# centres of the 8 pixels of a row or column when the image spans [-1, 1]
CENTERS = (np.arange(8) + 0.5) / 4.0 - 1.0


def main() -> None:
    """Keep the images of the first classes in their order; as column profiles, and as they are."""
    digits = load_digits()
    folder = Path(__file__).parent
    images, labels = digits.images.astype(np.uint8), digits.target.astype(np.int64)
    two = labels < 2
    # pixels are whole numbers 0..16, so the sums are exact and only the division rounds
    columns = images[two].sum(axis=1, dtype=np.int64)
    np.savez_compressed(
        folder / "digits_01.npz",
        points=CENTERS[:, None],
        weights=columns / columns.sum(axis=1, keepdims=True),
        labels=labels[two],
        images=images[two],
    )
    three = labels < 3
    # rows run down the image, so its first row has the largest x1
    down, right = np.meshgrid(-CENTERS, CENTERS, indexing="ij")
    np.savez_compressed(
        folder / "digits_012.npz",
        points=np.stack([right.ravel(), down.ravel()], axis=1),
        weights=images[three].reshape(-1, 64),
        labels=labels[three].astype(np.uint8),
    )


if __name__ == "__main__":
    main()
