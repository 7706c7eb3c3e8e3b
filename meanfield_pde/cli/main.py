"""The command ``meanfield-pde``. Everything heavy is imported by the command that needs it, so --help is quick."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from meanfield_pde.cli.interrupts import leave
from meanfield_pde.cli.options import (
    MANY_RUNS,
    NAME_OR_FILE,
    ONE_RUN,
    Folder,
    Json,
    Memory,
    Minutes,
    Quiet,
    Scheduler,
    Set,
    Steps,
    Threads,
    Workers,
)
from meanfield_pde.cli.order_commands import orders_command
from meanfield_pde.cli.particle_commands import VERDICT_EXITS, rates_command, validate_command
from meanfield_pde.cli.running import INTERRUPTED, Interrupted, named
from meanfield_pde.cli.study_commands import bench_command
from meanfield_pde.cli.terminal import open_streams, say, show_warning
from meanfield_pde.errors import MeanFieldError, NotConvergedError, NotFiniteError

if TYPE_CHECKING:
    from meanfield_pde.output.solution import Solution

BAD_INPUT, FAILED = 2, 3
EXITS = "Exit codes: 0 done, 2 bad input, 3 not finite or failed check, 130 stopped early with the state saved."

app = typer.Typer(
    name="meanfield-pde",
    help="Mean-field limits of transformers: the law of the tokens mu, its costate p and the law of the heads rho, "
    "trained by finite volumes.\n\nBegin with: meanfield-pde run gaussian_coupled -o out",
    epilog=EXITS,
    add_completion=False,
    pretty_exceptions_enable=False,
    # plain help: rich would take as long to load as everything else together
    rich_markup_mode=None,
)


def _version(wanted: bool) -> None:
    if wanted:
        from meanfield_pde import __version__

        print(f"meanfield-pde {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    pass


@app.command("run", short_help="Solve a problem into a new folder.", epilog=EXITS)
def run_command(
    problem: Annotated[
        str, typer.Argument(metavar="PROBLEM", help=f"{NAME_OR_FILE[:-1]}, or a folder of TOML files: an ensemble.")
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="DIR", help="Folder for the result, made new.", parser=named)
    ],
    set_: Set = None,
    sweep: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=A,B,C", help="One run for each value, all in an ensemble; repeatable: all pairs."),
    ] = None,
    workers: Workers = None,
    scheduler: Scheduler = None,
    steps: Steps = None,
    minutes: Minutes = None,
    memory: Memory = None,
    threads: Threads = None,
    quiet: Quiet = False,
) -> None:
    """Solve a problem into a new folder: problem.toml, checkpoints, segments of the record, result.h5."""
    from meanfield_pde.cli.ensembles import is_many, refuse_options, run_many
    from meanfield_pde.cli.running import Means, find_problem, run_folder

    if not problem:
        raise MeanFieldError("'' is no problem: give a TOML file or a problem of the library (see `list`)")
    means = Means(threads, quiet, memory, steps, minutes, scheduler)
    if is_many(problem, sweep or ()):
        refuse_options({"--threads": threads, "--steps": steps, "--minutes": minutes}, ONE_RUN)
        raise typer.Exit(run_many(problem, sweep or (), set_ or (), output, workers, means))
    refuse_options({"--workers": workers}, MANY_RUNS)
    _ended(run_folder(find_problem(problem, set_ or ()), output, means), output, quiet)


@app.command("resume", short_help="Go on with a run, bit for bit.", epilog=EXITS)
def resume_command(
    folder: Folder,
    set_: Set = None,
    step: Annotated[
        int | None, typer.Option("--from", min=0, metavar="K", help="Go on from the checkpoint of step K.")
    ] = None,
    steps: Steps = None,
    minutes: Minutes = None,
    memory: Memory = None,
    workers: Workers = None,
    scheduler: Scheduler = None,
    threads: Threads = None,
    quiet: Quiet = False,
) -> None:
    """Go on with a run, bit for bit, from its newest checkpoint.

    --set may change training.s_end, training.rest and output.*. With --from an older checkpoint is taken, and what
    came after it is given up. Of an ensemble what is missing is done; finished members are left alone.
    """
    from meanfield_pde.cli.ensembles import refuse_options, resume_many
    from meanfield_pde.cli.running import Means, resume_folder
    from meanfield_pde.output.ensemble_file import is_ensemble

    means = Means(threads, quiet, memory, steps, minutes, scheduler)
    if is_ensemble(folder):
        given = {"--threads": threads, "--steps": steps, "--minutes": minutes, "--from": step is not None}
        refuse_options(given, ONE_RUN)
        raise typer.Exit(resume_many(folder, set_ or (), workers, means))
    refuse_options({"--workers": workers}, MANY_RUNS)
    _ended(resume_folder(folder, set_ or (), step, means), folder, quiet)


def _ended(solution: Solution, folder: Path, quiet: bool) -> None:
    if not quiet:
        print(f"result: {folder / 'result.h5'}; look at it with `meanfield-pde show {folder} -f`")
    if not solution.is_done:
        raise typer.Exit(INTERRUPTED)


@app.command("show", short_help="Say what a run came to; draw its figures.")
def show_command(
    folder: Folder,
    json: Json = False,
    figures: Annotated[bool, typer.Option("--figures", "-f", help="Draw figures into DIR/figures.")] = False,
) -> None:
    """Say what a run came to: values, certificates, and the errors where the exact solution is known."""
    from meanfield_pde.cli.ensembles import refuse_options, show_many
    from meanfield_pde.cli.showing import show
    from meanfield_pde.output.ensemble_file import is_ensemble

    if is_ensemble(folder):
        refuse_options({"--figures": figures}, "is for one member of an ensemble: show DIR/MEMBER -f")
        return show_many(folder, json)
    show(folder, json, figures)


@app.command("list")
def list_command() -> None:
    """List the problems of the library."""
    from meanfield_pde import library
    from meanfield_pde.cli.terminal import table

    problems = [(name, library.get(name)[0]) for name in library.NAMES]
    table(("name", "kind", "what it is"), [(name, problem.kind, problem.title) for name, problem in problems], left=3)


@app.command("new", short_help="Print a library problem as TOML.")
def new_command(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A problem of the library (see `list`).")],
) -> None:
    """Print a problem of the library as TOML, to begin a problem of one's own: new NAME > my.toml."""
    from meanfield_pde import library
    from meanfield_pde.errors import nearest
    from meanfield_pde.problem_file import absolute_paths, dump_problem

    if name not in library.NAMES:
        raise MeanFieldError(f"there is no problem '{name}' in the library; {nearest(name, library.NAMES)}")
    problem = library.get(name)[0]
    print(f"# {name}: {problem.title}")
    print("# Every setting with its value. Run it with: meanfield-pde run THIS_FILE -o DIR")
    if problem.reference:
        print("# `reference` names the exact solution that results are compared with; remove it to change the form.")
    print()
    print(dump_problem(absolute_paths(problem)), end="")


@app.command("info", short_help="Versions, processor, threads, compiled code.")
def info_command() -> None:
    """Say which versions, processor, threads and compiled code are used."""
    from meanfield_pde.cli.info import print_info

    print_info()


@app.command("stationary", short_help="Heads at rest: a fixed point, its stability, the critical beta.", epilog=EXITS)
def stationary_command(
    problem: Annotated[str, typer.Argument(metavar="PROBLEM", help=NAME_OR_FILE)],
    set_: Set = None,
    critical: Annotated[
        tuple[float, float] | None,
        typer.Option(metavar="LOWER UPPER", help="Find the beta between them at which the symmetric state gives way."),
    ] = None,
    tolerance: Annotated[float, typer.Option(metavar="X", help="Largest ‖rho − Gibbs‖_1 that is rest.")] = 1e-10,
    json: Json = False,
    threads: Threads = None,
) -> None:
    """Find the law of heads at rest, rho = Gibbs(psi[rho]), that the free energy descends to from heads.initial."""
    from meanfield_pde.cli.resting import print_stationary
    from meanfield_pde.cli.running import find_problem

    print_stationary(find_problem(problem, set_ or ()), critical, tolerance, json, threads)


@app.command("demo", short_help="Handwritten digits, then an exact solution.")
def demo_command(
    output: Annotated[Path, typer.Option("--output", "-o", metavar="DIR", help="Folder for both runs.")] = Path("demo"),
    threads: Threads = None,
    quiet: Quiet = False,
) -> None:
    """Train on handwritten digits, then on the coupled problem with a known exact solution (about a minute)."""
    from meanfield_pde.cli.demo import demonstrate

    demonstrate(output, threads, quiet)


app.command("bench", short_help="Measure work against precision.", epilog=EXITS)(bench_command)
app.command("orders", short_help="Measure orders of convergence.", epilog=EXITS)(orders_command)
app.command("validate", short_help="Judge the output of a particle code.", epilog=VERDICT_EXITS)(validate_command)
app.command("rates", short_help="Fit the rate of a particle code.", epilog=EXITS)(rates_command)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code; no traceback for what a user can do wrong."""
    arguments = list(sys.argv[1:] if argv is None else argv) or ["--help"]
    open_streams()
    with warnings.catch_warnings():
        warnings.filterwarnings("always", category=UserWarning)
        warnings.showwarning = show_warning
        try:
            code = app(arguments, prog_name="meanfield-pde", standalone_mode=False)
            sys.stdout.flush()
            code = code if isinstance(code, int) else 0
            return leave(code) if code == INTERRUPTED else code
        except (NotFiniteError, NotConvergedError) as error:
            say(str(error))
            return FAILED
        except (MeanFieldError, MemoryError) as error:
            say(str(error) or "not enough memory: take fewer cells or sequences")
            return BAD_INPUT
        except (Interrupted, typer.Abort):
            return leave(INTERRUPTED)
        except BrokenPipeError:
            # the reader of our output has gone, as in `| head`
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0
        except OSError as error:
            say(str(error))
            return BAD_INPUT
        except Exception as error:
            # what the option parser refuses; its class has no public name
            words = getattr(error, "format_message", None)
            if words is None:
                raise
            if words():
                say(f"{words()} (see `meanfield-pde --help`)")
            return int(getattr(error, "exit_code", BAD_INPUT))


if __name__ == "__main__":
    sys.exit(main())
