"""`sbatch`: `ejb submit`, with sbatch's answers. It is started often: nothing is imported before it is needed."""

from __future__ import annotations

from collections.abc import Sequence

_TEST, _CLUSTERS, _QUIET = (
    "--test-only",
    "--option=--clusters=",
    "--option=--quiet",
)  # as the words of a line are translated

_CLICKS_WRONG_LINE, _WRONG_LINE = 2, 255


def run(words: Sequence[str]) -> int:
    """Submit; the exit code. Raises EjbError where the job is refused."""
    if list(words) in (["--version"], ["-V"], ["--usage"]):
        from ejbd import __version__
        from ejbd.cli.links import real

        code = real.ask("sbatch", words)
        if code is None:
            print(f"ejb {__version__}")
        return code or 0
    from ejbd.cli.submission.submitting import quickly

    line, cluster, silent = list(words), "", False
    if any(word.startswith(("-M", "--cl", "--te", "-Q", "--qu")) for word in words):
        from ejbd.cli.links import real
        from ejbd.cli.submission import sbatchwords
        from ejbd.cli.submission.words import KNOWN, words_behind

        line = sbatchwords.translated(words, KNOWN)
        options = line[: len(line) - len(words_behind(line))]
        silent = bool({_QUIET, "--quiet"} & set(options))
        named = [word.removeprefix(_CLUSTERS) for word in options if word.startswith(_CLUSTERS)]
        cluster = _own_cluster() if named else ""
        # Another cluster's jobs are none of EJB's, and when one would start is asked of the batch system.
        theirs = bool(named) and not {cluster, "all"} & set(named[-1].split(","))
        if theirs or (_TEST in options and not any(map(_is_ours, options))):
            code = real.ask("sbatch", words)
            if code is not None:
                return code
        if not theirs:
            line = [word for at, word in enumerate(line) if at >= len(options) or not word.startswith(_CLUSTERS)]
    line = ["submit", "--numbered", *line]
    code = quickly(line, cluster, silent=silent)
    if code is not None:
        return code
    from ejbd.cli.app import app

    try:
        app(line, prog_name="ejb")  # which says what is wrong with it, and exits
    except SystemExit as ended:
        return _WRONG_LINE if ended.code == _CLICKS_WRONG_LINE else int(ended.code or 0)
    return 0


def _is_ours(word: str) -> bool:
    """Whether a word is an option that only EJB has."""
    from ejbd.options.sbatch import matching

    return word.startswith("--") and not word.startswith("--option=") and not matching(word[2:].partition("=")[0])


def _own_cluster() -> str:
    """The name of the cluster that the site's commands ask; "" where they tell none."""
    import subprocess

    from ejbd.cli.links import real

    command = real.own_command("scontrol")
    if command is None:
        return ""
    told = subprocess.run([command, "show", "config"], check=False, capture_output=True, text=True).stdout
    pairs = (row.partition("=") for row in told.splitlines())
    return next((value.strip() for name, _, value in pairs if name.strip() == "ClusterName"), "")
