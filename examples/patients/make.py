"""Make patients.csv: invented people, drawn from a seed, written as a spreadsheet of a European hospital would.

Semicolons, decimal commas, latin-1, dates, words, ids, empty cells, and a label of nein and ja. Nobody in it lives.

    python make.py [FILE [SEED]]
"""

import sys
from datetime import date, timedelta
from pathlib import Path

import numpy as np

RECORDS = 3000
HEADER = "Besuch;Aufnahme;Alter;Größe;Einkommen;Raucher;Station;Befund;Klinik;krank"


def lines(seed: int = 20) -> list[str]:
    """The file, line by line; another seed is other people."""
    rng = np.random.default_rng(seed)
    found = [HEADER]
    for visit in range(RECORDS):
        age, smoker = int(rng.integers(18, 96)), rng.random() < 0.3
        ward, clinic = rng.choice(["Süd", "Nord", "Ost"]), rng.choice(["Köln", "Bonn", "Aachen"])
        fever = rng.random() < 0.35
        note = "Fieber, Husten seit Tagen" if fever else rng.choice(["kein Befund", "Kontrolle; nichts Neues"])
        risk = 0.07 * (age - 56) + 1.8 * smoker + 2.2 * fever + 0.8 * (ward == "Süd") - 1.6 + rng.normal(0, 0.8)
        day = date(2018, 1, 1) + timedelta(days=int(rng.integers(0, 2500)))
        cells = [
            f"V{visit:05d}",
            day.strftime("%d.%m.%Y"),
            "" if rng.random() < 0.04 else str(age),
            f"{rng.normal(1.71, 0.09):.2f}".replace(".", ","),
            "" if rng.random() < 0.1 else f"{rng.gamma(3.0, 12000.0):.2f}".replace(".", ","),
            "ja" if smoker else "nein",
            ward,
            f'"{note}"' if ";" in note else note,
            clinic,
            "ja" if risk > 0 else "nein",
        ]
        found.append(";".join(map(str, cells)))
    return found


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).with_name("patients.csv")
    seeds = [int(word) for word in sys.argv[2:3]]
    target.write_bytes(("\r\n".join(lines(*seeds)) + "\r\n").encode("latin-1"))
