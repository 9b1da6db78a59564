"""What came out of a study's runs: a row for each, the tables and the pictures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..support.errors import UserError
from ..support.files import write_text
from ..support.reward_names import accuracy_reward_index, reward_name
from ..train.curves import Curve, draw, draw_variants, read_curves
from ..train.lookup import find_reward_functions
from ..train.recipe import make_recipe
from .cells import slug
from .comparison import Row, comparison, means_over_variants
from .results import make_row, write_curves, write_results

if TYPE_CHECKING:
    from .cells import Cell, Study


def accuracy_reward(cell: Cell) -> str:
    """Name of the reward function whose mean is the accuracy, by the trainer's own rule.

    Raises:
        UserError: if it cannot be told.
    """
    recipe = make_recipe(cell.recipe, "the recipe")
    funcs = find_reward_functions(recipe.script, recipe.training.get("max_completion_length", 512))
    names = [reward_name(func) for func in funcs]
    try:
        return names[accuracy_reward_index(names, recipe.training.get("ces_accuracy_reward"))]
    except ValueError:
        raise UserError(
            f"it cannot be told which of the rewards {', '.join(names)} is the accuracy that the study compares: set "
            "`ces_accuracy_reward` to its name."
        ) from None


class Outcome:
    """The finished runs of a study.

    Args:
        study ([`Study`]):
            The study.
    """

    def __init__(self, study: Study):
        self.study = study
        # By the cells' names. A run that no row can be made of is in neither.
        self._rows: dict[str, Row] = {}
        self._curves: dict[str, Curve] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, cell: Cell) -> Row:
        """Takes a finished run in, and returns its row of `results.csv`."""
        reward = accuracy_reward(cell)
        row = make_row(cell, reward, self.study.evaluation is not None)
        if cell.trained:
            self._curves[cell.name] = read_curves(cell.folder, reward)
        self._rows[cell.name] = row
        return row

    def rows(self) -> list[Row]:
        """The rows, in the study's order."""
        return [self._rows[cell.name] for cell in self.study.cells if cell.name in self._rows]

    def write_tables(self) -> None:
        """Writes `results.csv` and `comparison.md`."""
        write_results(self.study, self.rows())
        write_text(self.study.output_dir / "comparison.md", comparison(self.study, self.rows()))

    def write_curves(self) -> list[str]:
        """Writes `curves.csv`, a picture for each variant and, once all runs are there, one over the variants.

        Returns:
            `list[str]`: the pictures' names.
        """
        study = self.study
        curves: dict[tuple[str, str], dict[int, Curve]] = {}
        for cell in study.cells:
            if cell.name in self._curves:
                curves.setdefault((cell.variant, cell.method), {})[cell.seed] = self._curves[cell.name]
        write_curves(study, curves)
        pictures = []
        if len(study.variants) > 1 and len(self) == len(study.cells):
            means = means_over_variants(study, self.rows())
            pictures.append(draw_variants(study.variants, means, study.output_dir / "variants.png").name)
        for variant in study.variants:
            shown = {method: list(runs.values()) for (of, method), runs in curves.items() if of == variant}
            if shown:
                name = f"curves{'_' if variant else ''}{slug(variant)}.png"
                pictures.append(draw(shown, study.output_dir / name).name)
        return pictures


def summary(row: dict[str, Any]) -> str:
    """One line for a run that has just ended."""
    place = ", ".join(str(part) for part in (row["variant"], row["method"], f"seed {row['seed']}") if part)
    entropy = f", {row['entropy_bits']:.3f} bits" if "entropy_bits" in row else ""
    spent = f" ({row['train/seconds']:.0f} s of training)" if row["train/seconds"] is not None else ""
    return f"{place}: {100 * row['accuracy']:.1f} %, {row['length_tokens']:.1f} tokens{entropy}{spent}"
