"""Write anaesthesia.csv: the grades that five anaesthetists gave to 45 patients.

    python data/make_anaesthesia.py

Source: A. P. Dawid and A. M. Skene, Maximum Likelihood Estimation of Observer Error-Rates Using the EM Algorithm,
Applied Statistics 28(1), 1979, Table 1. One row a patient: the three readings of observer 1, then one reading each of
observers 2, 3, 4, 5. Grades 1 to 4: fitness for a general anaesthetic.

One cell is uncertain: for patient 7, observer 1, some published copies of the table have 1 2 2 where this one (and the
R package `rater`) has 1 1 2. The class prevalences are the same to three digits either way.
"""

from pathlib import Path

OBSERVER_READING = ((1, 1), (1, 2), (1, 3), (2, 1), (3, 1), (4, 1), (5, 1))
TABLE = """
1111111 3334334 1122122 2223121 2223222 2223322 1122111 3333433 2222223
2322223 4444444 2223343 1111111 2223212 1211111 1112111 1111111 1111111
2222221 2221322 2222222 2222221 2223222 2212222 1111111 1111111 2322222
1111111 1111111 1121121 1111111 3333233 1111111 2222222 2223232 4334343
2212232 2323233 3333432 1111111 1111111 1212111 2322222 1211111 2222222
"""

rows = TABLE.split()
assert len(rows) == 45 and all(len(row) == 7 and set(row) <= set("1234") for row in rows)
lines = ["patient,observer,reading,grade"]
for patient, row in enumerate(rows, start=1):
    for (observer, reading), grade in zip(OBSERVER_READING, row, strict=True):
        lines.append(f"{patient},{observer},{reading},{grade}")

# bytes, not text: on Windows text mode would write other line ends, and the checksum would differ
Path(__file__).with_name("anaesthesia.csv").write_bytes(("\n".join(lines) + "\n").encode("ascii"))
print(f"anaesthesia.csv: {len(rows)} patients, {len(lines) - 1} grades")
