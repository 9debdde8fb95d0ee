"""What Liu & Weissman printed (SC'15), to be set beside our figures. Changes are in per cent."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PaperTrace:
    """One of the paper's logs: its name here, how its file begins, and its line of Table 2."""

    name: str
    file: str
    processors: int
    jobs: int
    duration: str
    utilization: float


TRACES = (
    PaperTrace("CTC", "CTC-SP2-1996", 338, 77_222, "7/96-5/97", 85.2),
    PaperTrace("SDSC", "SDSC-SP2-1998", 128, 59_725, "4/98-4/00", 83.5),
    PaperTrace("BLUE", "SDSC-BLUE-2000", 1152, 243_314, "4/00-1/03", 76.7),
    PaperTrace("KTH", "KTH-SP2-1996", 100, 28_489, "9/96-8/97", 70.4),
)

# trace: targets, wait, run, turnaround
TABLE_3 = {
    "CTC": (16_167, -50.4, 29.3, -33.9),
    "SDSC": (14_329, -68.9, 57.6, -48.4),
    "BLUE": (64_090, -59.8, 26.9, -36.1),
    "KTH": (4_399, -66.5, 34.9, -37.8),
}
# trace: subjobs, migrations, migration duration, resource overhead
TABLE_4 = {
    "CTC": (3.3, 2.1, 8.5, 19.7),
    "SDSC": (2.8, 1.7, 5.6, 16.4),
    "BLUE": (2.7, 1.5, 8.6, 18.2),
    "KTH": (2.7, 1.6, 6.4, 24.1),
}
# (trace, kind of job): jobs, turnaround before and after and change, wait likewise, run likewise (None: not printed)
TABLE_5: dict[tuple[str, str], tuple[int, int, int, float, int, int, float, int, int | None, float | None]] = {
    ("CTC", "elastic"): (21_035, 40_276, 35_512, -11.8, 31_695, 25_863, -18.4, 8_581, 9_649, 12.4),
    ("CTC", "non-elastic"): (59_123, 19_268, 17_874, -7.2, 7_008, 5_614, -19.9, 12_260, None, None),
    ("CTC", "all"): (76_446, 25_049, 22_728, -9.3, 13_801, 11_186, -18.9, 11_248, 11_542, 2.6),
    ("SDSC", "elastic"): (18_790, 58_235, 40_888, -29.8, 48_468, 29_001, -40.2, 9_767, 11_887, 21.7),
    ("SDSC", "non-elastic"): (40_333, 10_589, 8_676, -18.1, 5_412, 3_499, -35.3, 5_177, None, None),
    ("SDSC", "all"): (59_123, 25_731, 18_913, -26.5, 19_096, 11_604, -39.2, 6_636, 7_309, 10.2),
    ("BLUE", "elastic"): (135_302, 16_863, 14_881, -11.8, 12_015, 9_626, -19.9, 4_848, 5_254, 8.4),
    ("BLUE", "non-elastic"): (105_560, 4_096, 3_186, -22.2, 1_109, 199, -82.0, 2_987, None, None),
    ("BLUE", "all"): (240_862, 11_268, 9_756, -13.4, 7_235, 5_495, -24.1, 4_033, 4_261, 5.7),
    ("KTH", "elastic"): (5_811, 32_457, 25_632, -21.0, 22_137, 13_673, -38.2, 10_320, 11_959, 15.9),
    ("KTH", "non-elastic"): (22_392, 11_523, 11_565, 0.4, 2_982, 3_024, 1.4, 8_541, None, None),
    ("KTH", "all"): (28_203, 15_836, 14_463, -8.7, 6_929, 5_218, -24.7, 8_907, 9_245, 3.8),
}
# trace: idle processors before, after, change
TABLE_6 = {
    "CTC": (33.7, 22.4, -34.0),
    "SDSC": (13.8, 5.9, -57.4),
    "BLUE": (129.5, 53.8, -58.0),
    "KTH": (16.0, 6.6, -58.8),
}
