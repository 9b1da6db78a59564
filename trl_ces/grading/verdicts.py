"""Answers the requests of a grading worker. Imported only there: it loads the computer algebra."""

from .equality import equal
from .golds import usable
from .qwen.equality import equal_as_script, parser_problem
from .symbolic import expression, same

# Only `correct_qwen` needs sympy's generated parser, which other versions of sympy may have in another place.
script_problem = parser_problem()
if script_problem is None:
    try:
        from .qwen.symbolic import same_as_script
    except ImportError as error:
        script_problem = str(error)


def warm_up() -> None:
    """Parses and compares common LaTeX, so that the parser builds its tables once, before children are forked."""
    same(r"\frac{-3x^{2}+\sqrt{5}}{2(y-1)}", r"y=e^{-2t}\cos(3t)+C_{1}\ln x")
    same(r"\begin{pmatrix}1 & x \\ 2 & y\end{pmatrix}", r"\pi r^2+2ab-5i")
    same(r"2\sqrt{2}+x", r"\sqrt{8}+x")
    if script_problem is None:
        same_as_script(r"\frac{-3x^{2}+\sqrt{5}}{2(y-1)}", r"y=e^{-2}\cos(3t)+C_{1}\ln(x)-\frac{1}{2}")
        same_as_script(r"2\sqrt{2}+x", r"\sqrt{8}+x")


def answer_request(request: dict) -> bool:
    """Answers one request; worker.py describes the protocol."""
    if request["op"] == "equal":
        return equal(request["gold"], request["answer"], same)
    if request["op"] == "equal_as_script":
        if script_problem is not None:
            raise ImportError(script_problem)
        return equal_as_script(request["gold"], request["answer"], same_as_script)
    return usable(request["gold"], lambda value: expression(value) is not None)
