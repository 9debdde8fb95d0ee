"""What Klein & Perez print in their Tables 1 and 2 (least, mean, greatest), and how near ours have to be.

They do not print the size of the cluster: 100 nodes give their figures; 75, 90 and 128 do not.
"""

from __future__ import annotations

NODES = 100
TESTS = 1000
EPSILON = 0.004  # what they print as a small epsilon: less than half a per cent

# Of each measure: its heading, and how far our mean may be from theirs, beside what their rounding hides.
SYSTEM = {
    "waste": ("waste (%)", 1.0),
    "utilisation": ("utilisation (relative)", 0.01),
    "effective": ("effective use (%)", 1.0),
    "makespan": ("makespan (relative)", 0.01),
}
USER = {
    "completion": ("completion (relative)", 0.01),
    "waiting": ("waiting (relative)", 0.01),
    "expanded": ("expanded (%)", 1.0),
    "expansion": ("expansion of a job (%)", 1.0),
    "job_waste": ("waste of a job (%)", 1.0),
}
ROUNDING = {"utilisation": 0.005, "makespan": 0.005, "completion": 0.005, "waiting": 0.005}  # the others: 0.5

Triple = tuple[float, float, float]
PRINTED: dict[str, dict[str, Triple]] = {
    "rigid": {
        "waste": (43, 70, 116), "utilisation": (1, 1, 1), "effective": (30, 40, 51), "makespan": (1, 1, 1),
        "time": (4.64, 6.2, 9.41), "completion": (1, 1, 1), "waiting": (1, 1, 1), "expanded": (0, 0, 0),
        "expansion": (0, 0, 0), "job_waste": (0, 67, 681),
    },
    "noX": {
        "waste": (0, 0, 0), "utilisation": (0.46, 0.58, 0.69), "effective": (49, 61, 73),
        "makespan": (0.49, 0.65, 0.82), "time": (11.4, 24.7, 55.8), "completion": (0.42, 0.61, 0.84),
        "waiting": (0.36, 0.55, 0.81), "expanded": (0, 0, 0), "expansion": (0, 0, 0), "job_waste": (0, 0, 0),
    },
    "2X": {
        "waste": (0, 2, 11), "utilisation": (0.47, 0.60, 0.71), "effective": (50, 63, 75),
        "makespan": (0.48, 0.64, 0.82), "time": (11.4, 24.4, 45.4), "completion": (0.45, 0.61, 0.84),
        "waiting": (0.36, 0.54, 0.80), "expanded": (0, 22, 56), "expansion": (0, 4, 76), "job_waste": (0, 2, 75),
    },
    "2X+c": {
        "waste": (0, EPSILON, 4), "utilisation": (0.46, 0.59, 0.70), "effective": (53, 63, 75),
        "makespan": (0.48, 0.63, 0.82), "time": (17.1, 36.7, 88.6), "completion": (0.44, 0.60, 0.84),
        "waiting": (0.37, 0.54, 0.81), "expanded": (0, 7, 40), "expansion": (0, EPSILON, 60),
        "job_waste": (0, EPSILON, 41),
    },
    "infX": {
        "waste": (0, 7, 22), "utilisation": (0.49, 0.63, 0.78), "effective": (52, 64, 73),
        "makespan": (0.49, 0.63, 0.78), "time": (11.4, 23.4, 49.2), "completion": (0.43, 0.62, 0.81),
        "waiting": (0.27, 0.53, 0.76), "expanded": (0, 26, 62), "expansion": (0, 19, 884), "job_waste": (0, 6, 360),
    },
    "infX+c": {
        "waste": (0, 1, 11), "utilisation": (0.46, 0.59, 0.71), "effective": (55, 64, 74),
        "makespan": (0.47, 0.62, 0.78), "time": (17.6, 36, 124), "completion": (0.44, 0.60, 0.81),
        "waiting": (0.35, 0.53, 0.76), "expanded": (0, 13, 47), "expansion": (0, 5, 1354), "job_waste": (0, 1, 119),
    },
}  # fmt: skip


def off(measure: str, theirs: float, ours: float) -> bool:
    """Whether our mean is further from theirs than rounding and one unit of their last place explain."""
    band = {**SYSTEM, **USER}[measure][1] + ROUNDING.get(measure, 0.5)
    return abs(ours - theirs) > band + 1e-9
