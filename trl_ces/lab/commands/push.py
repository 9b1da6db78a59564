"""`trl-ces push`: a training's model, card, log and report on the Hub, private by default."""

from ...cli.parser import Parser, path
from ...support.errors import UserError

EPILOG = """  trl-ces push runs/ces                                   into your namespace, private
  trl-ces push runs/ces --repo_id me/r1-ces --public
  trl-ces push runs/lora --merge --evaluation runs/evaluation/runs_lora
  trl-ces push runs/ces --out to-push                     look at it first; nothing is uploaded

The token is that of `hf auth login`, or HF_TOKEN. Exit code 2: refused, 1: the Hub did not take it. See docs/hub.md.
"""


def run(argv: list[str]) -> int:
    """Gathers what belongs to a run and uploads it."""
    parser = Parser(
        "push",
        usage="trl-ces push RUN [--repo_id NAMESPACE/NAME] [--merge] [--public] [--evaluation DIR ...] [options]",
        description="Upload a trained model to the Hub: weights, tokenizer, recipe, log, report and model card.",
        epilog=EPILOG,
    )
    add = parser.add_argument
    add("run", type=path, metavar="RUN", help="an output directory of trl-ces train, or one of its checkpoints")
    add("--repo_id", metavar="NAME", help="default: `hub_model_id` of the recipe, or the directory's name")
    add("--merge", action="store_true", help="merge a LoRA adapter into its base")
    add("--public", action="store_true", help="create the repository public, or push to a public one")
    add("--revision", metavar="BRANCH", help="default: `hub_revision` of the recipe, or main")
    add("--evaluation", nargs="+", type=path, metavar="DIR", help="of trl-ces eval; default: its folder for RUN")
    add("--out", type=path, metavar="DIR", help="write everything there for review, and upload nothing")
    given = vars(parser.parse_args(argv or ["--help"]))
    out = given.pop("out")

    from ..hub.push import complete, failure, plan_push, push
    from ..hub.staging import place_run

    job = plan_push(**given)
    if out is not None:
        try:
            out.mkdir(parents=True)
        except OSError as error:
            why = "already exists" if out.exists() else f"cannot be made ({error.strerror})"
            raise UserError(f"`--out` {out} {why}: name a new folder.") from None
        place_run(job.weights, job.home, out)
        complete(out, job, job.repo_id)
        print(f"Written to {out}. Nothing was uploaded.")
        return 0
    try:
        print(f"Pushed to {push(job, 'Pushed by trl-ces')}")
    except UserError:
        raise
    except Exception as error:  # the network, the Hub, the disk: the run is unchanged
        print(failure(job, error))
        return 1
    return 0
