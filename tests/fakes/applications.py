"""Small cases of applications of others that checkpoint themselves: each makes its input in an empty folder.

pw.x needs a pseudopotential, and Debian has none: hydrogen's is made here from the published formula (Goedecker,
Teter & Hutter 1996), of which hydrogen has the local part alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path

CP2K_STEPS, PWSCF_STEPS, FOAM_STEPS, TORCH_STEPS = 60, 60, 120, 60
FOAM_CELLS, FOAM_STEP_S = 100 * 100, 0.0005
_FOAM_END = FOAM_STEPS * FOAM_STEP_S
_ROWS, _FIRST, _STEP = 601, -8.0, 0.0225


def _rows(values: Iterable[float]) -> str:
    told = [f"{value:.12E}" for value in values]
    return "\n".join(" ".join(told[at : at + 4]) for at in range(0, len(told), 4))


def _hydrogen() -> str:
    mesh = [math.exp(_FIRST + at * _STEP) for at in range(_ROWS)]

    def potential(r: float) -> float:
        x = r / 0.2
        return 2 * (-math.erf(x / math.sqrt(2)) / r + math.exp(-x * x / 2) * (-4.180237 + 0.725075 * x * x))

    def field(name: str, values: Iterable[float], more: str = "") -> str:
        closes = name.split()[0]
        return f'<{name} type="real" size="{_ROWS}" columns="4"{more}>\n{_rows(values)}\n</{closes}>\n'

    wave = ' index="1" label="1S" l="0" occupation="1.0" n="1" pseudo_energy="0.0"'
    return (
        '<UPF version="2.0.1">\n<PP_INFO>the local part of hydrogen</PP_INFO>\n<PP_HEADER generated="" author="" '
        'date="" comment="" element="H" pseudo_type="NC" relativistic="no" is_ultrasoft="F" is_paw="F" is_coulomb="F" '
        'has_so="F" has_wfc="F" has_gipaw="F" core_correction="F" functional="SLA PZ NOGX NOGC" z_valence="1.0" '
        'total_psenergy="0.0" wfc_cutoff="0.0" rho_cutoff="0.0" l_max="0" l_max_rho="0" l_local="0" '
        f'mesh_size="{_ROWS}" number_of_wfc="1" number_of_proj="0"/>\n'
        f'<PP_MESH dx="{_STEP}" mesh="{_ROWS}" xmin="{_FIRST}" rmax="{mesh[-1]:.6f}" zmesh="1.0">\n'
        + field("PP_R", mesh)
        + field("PP_RAB", (r * _STEP for r in mesh))
        + "</PP_MESH>\n"
        + field("PP_LOCAL", map(potential, mesh))
        + '<PP_NONLOCAL>\n<PP_DIJ type="real" size="0" columns="4">\n</PP_DIJ>\n</PP_NONLOCAL>\n<PP_PSWFC>\n'
        + field("PP_CHI.1", (2 * r * math.exp(-r) for r in mesh), wave)
        + "</PP_PSWFC>\n"
        + field("PP_RHOATOM", (4 * r * r * math.exp(-2 * r) for r in mesh))
        + "</UPF>\n"
    )


_PWSCF = f"""\
&control
calculation = 'md', prefix = 'h2', outdir = 'out', pseudo_dir = '.', restart_mode = 'from_scratch'
nstep = {PWSCF_STEPS}, dt = 5.0, disk_io = 'low'
/
&system
ibrav = 1, celldm(1) = 12.0, nat = 2, ntyp = 1, ecutwfc = 30.0, nosym = .true.
/
&electrons
conv_thr = 1.0d-9
/
&ions
/
ATOMIC_SPECIES
H 1.008 H.upf
ATOMIC_POSITIONS bohr
H 0.0 0.0 0.0
H 1.5 0.0 0.0
K_POINTS gamma
"""


def pwscf(case: Path, steps: int = PWSCF_STEPS) -> None:
    """A hydrogen molecule that swings: `pw.x -in h2.in`."""
    (case / "H.upf").write_text(_hydrogen())
    (case / "h2.in").write_text(_PWSCF.replace(f"nstep = {PWSCF_STEPS}", f"nstep = {steps}"))


_CP2K = f"""\
&GLOBAL
  PROJECT w
  RUN_TYPE MD
  PRINT_LEVEL LOW
&END GLOBAL
&FORCE_EVAL
  METHOD QS
  &DFT
    BASIS_SET_FILE_NAME GTH_BASIS_SETS
    POTENTIAL_FILE_NAME GTH_POTENTIALS
    &MGRID
      CUTOFF 100
    &END MGRID
    &QS
      EPS_DEFAULT 1.0E-8
    &END QS
    &SCF
      SCF_GUESS RESTART
      EPS_SCF 1.0E-6
      MAX_SCF 30
      &OT
      &END OT
    &END SCF
    &XC
      &XC_FUNCTIONAL PADE
      &END XC_FUNCTIONAL
    &END XC
  &END DFT
  &SUBSYS
    &CELL
      ABC 6.0 6.0 6.0
    &END CELL
    &COORD
      O 0.000000 0.000000 0.065587
      H 0.000000 -0.757136 -0.520545
      H 0.000000 0.757136 -0.520545
    &END COORD
    &KIND O
      BASIS_SET SZV-GTH
      POTENTIAL GTH-PADE-q6
    &END KIND
    &KIND H
      BASIS_SET SZV-GTH
      POTENTIAL GTH-PADE-q1
    &END KIND
  &END SUBSYS
&END FORCE_EVAL
&MOTION
  &MD
    ENSEMBLE NVE
    STEPS {CP2K_STEPS}
    MAX_STEPS {CP2K_STEPS}
    TIMESTEP 0.5
    TEMPERATURE 0.0
  &END MD
  &PRINT
    &RESTART
      &EACH
        MD 1
      &END EACH
    &END RESTART
  &END PRINT
&END MOTION
"""


def cp2k(case: Path, steps: int = CP2K_STEPS) -> None:
    """A molecule of water: `cp2k.psmp -i w.inp`. With MAX_STEPS N the steps 0 to N - 1 are made."""
    (case / "w.inp").write_text(_CP2K.replace(f"STEPS {CP2K_STEPS}", f"STEPS {steps}"))


_FOAM = {
    "system/controlDict": f"""\
application icoFoam;
startFrom latestTime;
startTime 0;
stopAt endTime;
endTime {_FOAM_END:g};
deltaT {FOAM_STEP_S:g};
writeControl timeStep;
writeInterval {FOAM_STEPS};
writeFormat ascii;
writePrecision 8;
writeCompression off;
timeFormat general;
timePrecision 6;
runTimeModifiable true;
OptimisationSwitches
{{
    stopAtWriteNowSignal 10;
}}
""",
    "system/fvSchemes": """\
ddtSchemes { default Euler; }
gradSchemes { default Gauss linear; }
divSchemes { default none; div(phi,U) Gauss linear; }
laplacianSchemes { default Gauss linear orthogonal; }
interpolationSchemes { default linear; }
snGradSchemes { default orthogonal; }
""",
    "system/fvSolution": """\
solvers
{
    p { solver PCG; preconditioner DIC; tolerance 1e-06; relTol 0.05; }
    pFinal { $p; relTol 0; }
    U { solver smoothSolver; smoother symGaussSeidel; tolerance 1e-05; relTol 0; }
}
PISO { nCorrectors 2; nNonOrthogonalCorrectors 0; pRefCell 0; pRefValue 0; }
""",
    "system/decomposeParDict": """\
numberOfSubdomains 2;
method simple;
simpleCoeffs { n (2 1 1); delta 0.001; }
""",
    "system/blockMeshDict": """\
scale 0.1;
vertices ((0 0 0) (1 0 0) (1 1 0) (0 1 0) (0 0 0.1) (1 0 0.1) (1 1 0.1) (0 1 0.1));
blocks (hex (0 1 2 3 4 5 6 7) (100 100 1) simpleGrading (1 1 1));
edges ();
boundary
(
    movingWall { type wall; faces ((3 7 6 2)); }
    fixedWalls { type wall; faces ((0 4 7 3) (2 6 5 1) (1 5 4 0)); }
    frontAndBack { type empty; faces ((0 3 2 1) (4 5 6 7)); }
);
mergePatchPairs ();
""",
    "constant/transportProperties": "nu 0.01;\n",
    "0/U": """\
dimensions [0 1 -1 0 0 0 0];
internalField uniform (0 0 0);
boundaryField
{
    movingWall { type fixedValue; value uniform (0.2 0 0); }
    fixedWalls { type noSlip; }
    frontAndBack { type empty; }
}
""",
    "0/p": """\
dimensions [0 2 -2 0 0 0 0];
internalField uniform 0;
boundaryField
{
    movingWall { type zeroGradient; }
    fixedWalls { type zeroGradient; }
    frontAndBack { type empty; }
}
""",
}
_CLASSES = {"0/U": "volVectorField", "0/p": "volScalarField"}


def openfoam(case: Path, steps: int = FOAM_STEPS) -> None:
    """A lid-driven cavity, before its mesh is made: `blockMesh`, then `icoFoam`."""
    for name, text in _FOAM.items():
        file = case / name
        file.parent.mkdir(exist_ok=True)
        kind = _CLASSES.get(name, "dictionary")
        head = f"FoamFile\n{{\n    version 2.0;\n    format ascii;\n    class {kind};\n    object {file.name};\n}}\n"
        file.write_text(head + text.replace(f"endTime {_FOAM_END:g}", f"endTime {steps * FOAM_STEP_S:g}"))


def torch(case: Path, steps: int = TORCH_STEPS) -> None:
    """The model of the examples: `torchrun ... train_torch.py`."""
    text = (Path(__file__).parents[2] / "examples" / "train_torch.py").read_text()
    (case / "train_torch.py").write_text(text.replace("default=400", f"default={steps}"))
