"""What Utrera et al. printed (Euro-Par 2012), and what another implementation found, to be set beside our figures."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PrintedLog:
    """A row of Tables 2 and 3: the log and which of its rows (the first one not among them), the machine, its use.

    `use`, `use_long`: processor use of all jobs and of long ones (0 to 1). `asked`: requested processors a processor.
    `easy_mpl`, `malleable_mpl`: Table 3.
    """

    name: str
    file: str
    processors: int
    after: int
    last: int
    use: float
    use_long: float
    asked: float
    easy_mpl: float
    malleable_mpl: float


LOGS = (
    PrintedLog("CTC", "CTC-SP2-1996", 430, 20_000, 25_000, 0.57, 0.70, 5.8, 0.75, 0.91),
    PrintedLog("BLUE", "SDSC-BLUE-2000", 1152, 20_000, 25_000, 0.23, 0.70, 3.8, 0.76, 0.98),
    PrintedLog("SDSC", "SDSC-SP2-1998", 128, 40_000, 45_000, 0.66, 0.90, 8.8, 0.89, 1.47),
)

# Figure 2: the run times are printed; the widths follow from the fragmentation of 30 %, that of J6 is 9 or 10.
FIGURE_2_RUNS = (2, 1, 1, 2, 2, 1)
FIGURE_2_WIDTHS = (8, 4, 2, 8, 4, 10)
FIGURE_2_PROCESSORS = 10
# mean response, mean slowdown, fragmentation in per cent. The last one cannot be: J6 waits beside 4 free processors.
FIGURE_2 = {"fcfs": (4.66, 3.5, 30.0), "easy": (4.33, 3.16, 30.0), "malleable": (3.66, 2.5, 0.0)}

# load in per cent: wait, response, slowdown; simulated and run, under EASY and FCFS-malleable
TABLE_1: dict[int, dict[str, tuple[float, float, float]]] = {
    30: {
        "easy simulated": (55.0, 107.0, 2.1), "easy run": (60.0, 113.0, 2.1),
        "malleable simulated": (1.6, 73.5, 1.2), "malleable run": (1.3, 73.3, 1.4),
    },
    50: {
        "easy simulated": (69.6, 121.3, 6.5), "easy run": (74.0, 125.0, 6.5),
        "malleable simulated": (13.2, 93.5, 3.2), "malleable run": (13.8, 93.0, 3.2),
    },
    70: {
        "easy simulated": (93.0, 145.2, 10.7), "easy run": (100.0, 152.0, 10.3),
        "malleable simulated": (36.8, 118.3, 6.0), "malleable run": (32.0, 113.0, 5.7),
    },
    90: {
        "easy simulated": (175.0, 228.0, 19.0), "easy run": (162.0, 214.0, 16.0),
        "malleable simulated": (118.0, 220.0, 10.8), "malleable run": (111.0, 198.9, 9.6),
    },
}  # fmt: skip

# stretch of a folded job: change of mean response and of bounded slowdown against EASY, in per cent, as another
# implementation of this reading found them (it is not in the paper)
BREAK_EVEN: dict[float, dict[str, tuple[float, float]]] = {
    1.0: {"CTC": (-14, -40), "BLUE": (-53, -83), "SDSC": (-79, -90), "KTH": (-38, -77)},
    1.4: {"CTC": (-6, 14), "BLUE": (-26, 4), "SDSC": (-67, -70), "KTH": (-27, -49)},
    1.6: {"CTC": (-1, 52), "BLUE": (-3, 83), "SDSC": (-52, -36), "KTH": (-18, -24)},
    1.8: {"CTC": (6, 104), "BLUE": (26, 186), "SDSC": (-12, 61), "KTH": (-2, 23)},
    2.0: {"CTC": (18, 205), "BLUE": (63, 323), "SDSC": (145, 408), "KTH": (24, 106)},
}
