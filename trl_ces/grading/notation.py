r"""
Rewrite synonyms to one notation. Inputs are short (support/limits.py).

| gold | equal | different |
|---|---|---|
| `\frac{1}{2}` | `\dfrac12`, `½`, `$\frac{1}{2}$.` | `\frac{2}{1}` |
| `x \geq 2` | `x ≥ 2`, `x >= 2` | `x > 2` |
"""

import re
from functools import lru_cache
from typing import Any
from unicodedata import normalize

_UNICODE: dict[int, Any] = {0xFF01 + n: chr(0x21 + n) for n in range(94)}  # full width
_UNICODE |= str.maketrans("−–⁄÷、⟨⟩\u00a0\u202f", "--//,()  ")
_UNICODE |= {ord(letter): rf"\mathbb{{{plain}}}" for letter, plain in zip("ℝℤℕℚℂ", "RZNQC", strict=True)}
_NAMED = "×times ·cdot πpi ∞infty ≤leq ≥geq ≠neq ±pm ∓mp ∪cup ∈in °degree ≈approx "
_NAMED += "αalpha βbeta γgamma δdelta θtheta λlambda ρrho σsigma τtau ωomega"
_UNICODE |= {ord(name[0]): rf"\{name[1:]} " for name in _NAMED.split()}
_UNICODE |= {0x2460 + n: rf"\textcircled{{{n + 1}}}" for n in range(20)}
_UNICODE |= {ord(part): rf"\frac{{{top}}}{{{bottom}}}" for part, top, bottom in ("½12", "¼14", "¾34")}
_NESTED = r"(?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*"
_MAX_LAYERS = 10  # maximum number of removed wrappers
BLANKS_AND_SIZES = re.compile(r"\s|\\left|\\right")
LETTER = r"(?<![A-Za-z\\]){}(?![A-Za-z])"  # a letter outside words
# Soft hyphens, zero-width and direction marks, variation selectors.
_INVISIBLE = re.compile("[\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff\ufe00-\ufe0f]")


def without_invisible(text: str) -> str:
    """Remove invisible characters from a text."""
    return text if text.isascii() else _INVISIBLE.sub("", text)


_RAISED = re.compile("[⁰¹²³⁴-⁹⁻ⁿ]+|[₀-₉]+")
# Replacements for commands; "" for commands that only affect formatting.
_FORMATTING = (
    "left right Bigl Bigr bigl bigr Biggl Biggr biggl biggr Big big Bigg bigg displaystyle textstyle limits nolimits "
    "tiny small normalsize large Large LARGE huge Huge bf it rm strut mathstrut"
)
_COMMANDS = {
    **dict.fromkeys(_FORMATTING.split(), ""),
    **dict.fromkeys(["dfrac", "tfrac", "cfrac", "nicefrac", "sfrac"], r"\frac"),
    "ne": r"\neq ", "cr": r"\\ ", "varnothing": r"\emptyset ", "lbrace": r"\{", "rbrace": r"\}", "langle": "(",
    "rangle": ")", "mod": r"\pmod ", "dbinom": r"\binom", "ell": "l ", "lbrack": "[", "rbrack": "]",
    "lparen": "(", "rparen": ")", "colon": ":", "AA": "Å", "lvert": "|",
    "rvert": "|", "vert": "|",
}  # fmt: skip
# A separator between statements, followed by a name: y = 1 \quad z = 2.
_BREAK = (
    r"(?:(?:\\q?quad(?![A-Za-z])|\\vee|\\lor|\\wedge|\\land|\\\\|\n)[^\S\n]*){1,8}"
    r"(?=[A-Za-z](?:_\{?\w+\}?)?\s*=|\\text\{\s*\w+\s*[:=])"
)
_SIGN = (
    r"(?:\\text\s*\{\s*(?:USD?|EUR|GBP)\s*\}|(?<![A-Za-z])(?:US(?=\\?\$)|(?:USD|EUR|GBP)(?=\s*\d))|"
    r"\\\$|\\textdollar|[£€¥￥¢]|\\?%|"
    r"\^\s*(?:\{\s*\\(?:circ|degree|mathrm\s*\{o\})\s*\}|\\circ(?![A-Za-z]))|\^?\\degree(?![A-Za-z])\s?)"
)
_ALL_BUT = r"(?i:(?:all |the )?real (?:numbers|values|[a-z])(?: of [a-z])?,? (?:except|other than|but))"
_GIVEN = r"\s*[A-Za-z](?:_\w)?\s*=[^\[\],=]+"
_IF = re.compile(r"&\s*\\text\s*\{\s*(?:if|for|when)\s*\}\s*&")
_MATRIX = r"\\begin\{pmatrix\}(?:(?!\\(?:begin|end)\{pmatrix\})(?s:.))*\\end\{pmatrix\}"
_EXTREMUM = r"(?:(?:[Ll]ocal|[Rr]elative|[Aa]bsolute|[Gg]lobal) )?\\?[Mm](ax|in)(?:im(?:um|a))?\$?(?: points?)? at"
_REWRITES: list[tuple[re.Pattern[str], Any]] = [  # pattern, replacement
    (re.compile(pattern), replacement)
    for pattern, replacement in [
        (r"(?<!\\)\\+\s*$", ""),  # \boxed{\ 5\ } ends in a space
        (r"\\math(?:bin|rel|ord|op|open|close|punct|inner)\s*\{([^{}]*)\}", r"\1"),
        (r"\\(math[a-z]+|text[a-z]+)\s+([A-Za-z\d])(?![A-Za-z])", r"\\\1{\2}"),
        (r"\\in(?![A-Za-z])\s*\\?([NZQR])(?![A-Za-z])", r"\\in \\mathbb{\1}"),
        (r"\\in(?![A-Za-z])\s*\\math(?:bf|rm|bb)\s*\{\s*([A-Z])\s*\}", r"\\in \\mathbb{\1}"),
        (r"(?<![\w\\])([A-Za-z](?:\([a-z]\))?)\s*\\equiv(?!.{0,99}mod)", r"\1="),
        (r"(?:\(\s*)?\\(?:text|mathrm|operatorname)\s*\{\s*\(?mod\s*\}\s*(?:\\\s)?\s*(\d+)\s*\)?", r"\\pmod{\1}"),
        (r"\(\s*mod\s*(\d+)\s*\)", r"\\pmod{\1}"),
        (
            r"(?:(?:for|with|where)\s+(?:(?:any|all|every) )?|any )integers?\s*\}?\s*\$?([a-z])(?![a-z])\$?\s*\}?",
            r", \1\\in \\mathbb{Z}",
        ),
        (r"^(?:[a-z]\s*:\s*)?([a-z])\s*\\mapsto(?![a-z])", r"f(\1)="),
        (
            r"^\\\{\s*([^:|]{0,99}\([^()]{0,200}\))\s*(?:\\mid|\||:)\s*([a-z]\s*\\in\s*\\mathbb\s*\{?R\}?)\s*\\\}$",
            r"\1, \2",
        ),
        (r"(\d)\s*(?:\\text\s*\{)?[时点]\s*\}?\s*(\d\d)\s*(?:\\text\s*\{)?分\s*\}?$", r"\1:\2"),
        (rf"^(?:\\text\s*\{{)?{_ALL_BUT}(?: for)?\s*\}}?\s*(.+)$", r"\\mathbb{R}\\setminus\\{\1\\}"),
        (r"\{:\}", ":"),
        (r"(?<=\d)\{,\}(?=(?:\d{1,2}|\d{4,})(?!\d))", "."),  # 4{,}5
        (r"\\mathbb\s*\{?Z\}?\s*(?:/\s*|_\s*\{?)(\d+)\s*\}?(?:\s*\\mathbb\s*\{?Z\}?)?", r"\\text{integers modulo \1}"),
        (r"(\w{1,20}|\{[^{}]*\})\s*\\choose\s*(\w{1,20}|\{[^{}]*\})", r"\\binom{\1}{\2}"),
        (r"(?<![A-Za-z\\])C\(\s*(\d+)\s*,\s*(\d+)\s*\)", r"\\binom{\1}{\2}"),
        (r"^\s*\](?=[^\[\]]*[,;][^\[\]]*[\[\]]\s*$)", "("),  # ]1, 2]
        (r"^(\s*[(\[](?=[^\[\]]*[,;])[^\[\]]*)\[\s*$", r"\1)"),
        (
            rf"\\text\s*\{{\s*(,|and)?\s*{_EXTREMUM}\s*\}}\s*|{_EXTREMUM}\s+",
            lambda found: f"{',' if found[1] else ''} m{found[2] or found[3]} at ",
        ),
        (
            r"\\left\s*\\\{\s*\\begin\{array\}\s*\{[^{}]*\}((?s:[^&]*&.*?))\\end\{array\}\s*\\right\s*\.",
            lambda found: rf"\begin{{cases}}{re.sub(_IF, '&', found[1])}\end{{cases}}",
        ),
        (r"^(?:\\text\s*\{\s*Yes[.,;]?\s*\}|Yes)[.,;]?\s*(?=[A-Za-z]\([a-z, ]+\)\s*=)", ""),
        (r"\\forall(?![A-Za-z])", r"\\text{ for all }"),
        (r"\+/-", r"\\pm "),
        (r"(?<=[\w)])\*\*(?=[\w(-])", "^"),
        (r"(\\mathbb\s*\{?R\}?)\s*-\s*(?=\\\{)", r"\1\\setminus "),
        (r"\\\}\s*\\cup\s*\\\{", ","),  # \{0\}\cup\{1\}
        (r"\\\\\s*\[\s*-?[\d.]+\s*(?:pt|em|ex|mm|cm|in)\s*\]", r"\\\\ "),  # space between rows
        # Remove invisible and struck-out text.
        (rf"\\(?:[hv]?phantom|[bx]?cancel|sout|st)\s*\{{{_NESTED}\}}", ""),
        (rf"\\(?:text)?color\s*\{{\s*(?i:white|transparent|#?fff)[^{{}}]*\}}\s*(?:\{{{_NESTED}\}}|[^{{}}]*)", ""),
        (r"\\(?:textcolor|color)\s*\{[^{}]*\}", ""),
        (r"&\s*=|=\s*&", "="),
        (r"\\begin\{cases\}([^&]*)\\end\{cases\}", r"\1"),  # not piecewise
        (r"\\begin\{((?:align|gather)(?:ed)?\*?)\}((?:(?!\\\\)(?s:.))*)\\end\{\1\}", r"\2"),  # a single line
        (r"(?<=\d)(?:\{,\}|\{?\\,\}?)(?=\d{3}(?!\d))", ""),
        (r"(?<![\d.,])(\d{1,3}),(\d{3})(?=\s*\\(?:pi|sqrt)(?![A-Za-z]))", r"\1\2"),
        (rf"(?:([,;])[^\S\n]*)?{_BREAK}", lambda found: f"{found[1] or ','} "),
        (r"√\s*(?:(\d+(?:\.\d+)?)|\(([^()]*)\))", r"\\sqrt{\1\2}"),
        (r"√", r"\\sqrt "),
        # Remove percent, degree and currency signs without joining digits. % does not mean a factor of 1/100.
        (rf"(?<=\d)\s*{_SIGN}\s*(?=\d)", " "),
        (_SIGN, ""),
        (r"\$|(?<!\\)\\[()\[\]]", ""),  # math mode
        (r"\\!|\\(?:left|right)\.", ""),
        (r"\^\s*\{?(\d+)\}?\s*/\s*_\s*\{?(\d+)\}?", r"\1/\2"),  # ^5/_9
        (rf"\\({'|'.join(_COMMANDS)})(?![A-Za-z])", lambda command: _COMMANDS[command[1]]),
        (
            r"^\\bigcup\s*_\s*\{\s*([a-z])\s*(?:=\s*-\s*\\infty\s*\}\s*\^\s*\{?\s*\+?\\infty\s*\}?|"
            r"\\in\s*\\mathbb\{Z\}\s*\})(.+)",
            lambda found: rf"{_without_group(found[2].strip())}, {found[1]}\in \mathbb{{Z}}",
        ),
        (r"([(\[][^()\[\],;]*);([^()\[\],;]*[)\]])", r"\1,\2"),  # (-\infty; 2]
        (rf"^\s*\[({_GIVEN}(?:,{_GIVEN})+)\]\s*$", r"\1"),  # [x = 1, y = 2]
        (r"\\([gl])eq?(?:slant)*(?![A-Za-z])", r"\\\1eq "),
        (r"<=|=<", r"\\leq "),
        (r">=|=>", r"\\geq "),
        (r"(?<![\d)])!=", r"\\neq "),  # 4!=24
        (r":=|==", "="),
        (r"(?:\\text)?\{,\}", ","),
        (r"\\begin\{(?:array\}\s*\{[^{}]*|(?:[bpB]|small)?matrix)\}", r"\\begin{pmatrix}"),
        (r"\\end\{(?:array|(?:[bpB]|small)?matrix)\}", r"\\end{pmatrix}"),
        (rf"[\[(]\s*({_MATRIX})\s*[\])]", r"\1"),
        (r"\\(?:text|mathrm|mbox|textrm)\s*\{\s*(?:,\s*)?(?:and|or|且|和|或)\s*\}", ","),
        (r"\\text\s*\{\s*with\s*\}(?=\s*[A-Z]\s*=)", ","),
        (r"\\text\s*\{\s*\(([一-鿿]{1,3})\)\s*\}", r"\\text{\1}"),  # 152 (字)
        (r"(?<=\d)\s*\\text\s*\{\s*by\s*\}\s*(?=\d)", r"\\times "),
        (r"\\text\s*\{\s*and\s+(?=[a-z])", r",\\text{"),
        (r"(?<![A-Za-z\\])(?:and|or)(?![A-Za-z])|(?<=[\d}\])\s])[和或](?=[\s\d\\({\[-])", ","),
        (r"(?<=[\w})])(\s*\\text\s*\{[^{},;]{1,40})[,;]\s*([^{},;]*\})", r"\1},\\text{\2"),  # 14\text{ ft and }16
        (r"\\text\{\}", ""),
        (r"(?<!\\)\\(?:[,:;>]|\s|quad(?![A-Za-z])|qquad(?![A-Za-z]))|~", " "),
        (r"(?<![\d.])\.(?=\d)", "0."),  # .5
        (r"\s+", " "),
    ]
]
_ANSWER_IS = (
    r"\s*(?:(?:the\s+)?(?:(?:final\s+)?answer|solution|result|value|total|area|volume|length|distance|probability)"
    r"(?:\s+(?:is|equals)|\s*:)|there\s+are|the\s+(?:interval|set|point|line)\b|exactly|quadrants(?=\s+[IVX1-4])|(?:about|approximately|roughly)(?=[\s}]*\d)|"
    # 面积是, 共有
    r"(?!.*,\s*[一-鿿])(?:(?!不|[非没否未除或半倍错]|可能|大概|[大小]于|超过|至[多少])[A-Z一-鿿:,])*(?:是|为|有|共|得|需要?|等于)(?=[\s:}]*[-\d\\(]))[\s:]*"
)
# \text{The answer is } 5 and \text{The answer is 5}
_PREFACE = re.compile(rf"^(?:\\text\s*\{{{_ANSWER_IS}\}}|(\\text\s*\{{)?{_ANSWER_IS})|^\\approx", re.IGNORECASE)


@lru_cache(maxsize=8192)
def tidy(text: str) -> str:
    r"""Rewrite LaTeX synonyms to one form. Keep `\text{...}`, because lists and units are recognized by it."""
    text = without_invisible(text)
    text = _RAISED.sub(lambda run: f"{'_' if run[0] >= '₀' else '^'}{{{normalize('NFKC', run[0])}}}", text)
    text = text.translate(_UNICODE).strip()
    for pattern, replacement in _REWRITES:
        text = pattern.sub(replacement, text)
    text = text.strip()
    for _ in range(_MAX_LAYERS):
        before = text
        box = re.match(r"^\\(?:boxed|fbox)\s*\{(.*)\}$", text, re.DOTALL)
        if box and is_balanced(box.group(1)):
            text = box.group(1)
        text = _PREFACE.sub(r"\1", text).strip().rstrip(".。;").strip(" :*").strip()
        group = re.match(r"^(?:|\\(?:mathbf|mathrm|boldsymbol|bm)\s*(?=\{.*=))\{(.*)\}$", text, re.DOTALL)
        if group and is_balanced(group[1]):  # {5}, \mathbf{N = 5}
            text = group[1].strip()
        if text == before:
            break
    return text


_WRAPPER = re.compile(
    r"\\(?:text(?:bf|it|rm|normal|sf|tt)?|math(?:rm|bf|it|sf|cal)|boldsymbol|bm|mbox|operatorname|emph|underline|boxed|fbox)"
    rf"\s*\*?\s*\{{({_NESTED})\}}"
)


@lru_cache(maxsize=8192)
def unwrap(text: str) -> str:
    r"""Replace `\text{...}`, `\mathrm{...}` and similar commands with their content."""
    for _ in range(_MAX_LAYERS):
        unwrapped = _WRAPPER.sub(r"\1", text)
        if unwrapped == text:
            break
        text = unwrapped
    return text.strip()


def is_balanced(text: str) -> bool:
    r"""Whether all braces match. `\{` and `\}` do not count."""
    return _brackets_match(text, {"{": 1, "}": -1})


def _without_group(union: str) -> str:
    brackets = enclosed(union)
    return brackets[1] if brackets and r"\cup" in brackets[1] else union


def _brackets_match(text: str, steps: dict[str, int]) -> bool:
    """Whether all brackets match. `steps` maps opening brackets to 1 and closing brackets to -1."""
    depth = 0
    for bracket in re.findall(r"\\.|[{}()\[\]]", text, re.DOTALL):
        depth += steps.get(bracket, 0)
        if depth < 0:
            return False
    return depth == 0


def split_top(text: str, separators: str) -> list[str]:
    """Split at separators outside all brackets; return one piece if brackets do not match."""
    pieces, depth, start = [], 0, 0
    for match in re.finditer(rf"\\[A-Za-z]+|\\.|[{{}}()\[\]{re.escape(separators)}]", text, re.DOTALL):
        token = match.group()
        if token in {"{", "(", "[", r"\{"}:
            depth += 1
        elif token in {"}", ")", "]", r"\}"}:
            depth -= 1
            if depth < 0:
                return [text]
        elif depth == 0 and token in separators:
            pieces.append(text[start : match.start()])
            start = match.end()
    pieces.append(text[start:])
    pieces = [piece.strip() for piece in pieces]
    return [piece for piece in pieces if piece] if depth == 0 else [text]


_ENCLOSED = re.compile(r"(\(|\[|\\\{)(.*)(\)|\]|\\\})", re.DOTALL)


def enclosed(text: str) -> tuple[str, str, str] | None:
    r"""Return the opening bracket, content and closing bracket if one pair encloses the whole text."""
    parts = _ENCLOSED.fullmatch(text)
    if not parts:
        return None
    opening, inner, closing = parts.groups()
    matched = _brackets_match(inner, {"(": 1, "[": 1, r"\{": 1, ")": -1, "]": -1, r"\}": -1})
    return (opening, inner, closing) if matched else None
