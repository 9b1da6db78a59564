r"""
Rewrite conventional notations in one form: the reals, "no solution", integration constants, numbers with a base, the
spelling of words, choices. This module does not compare values.

| gold | equal | different |
|---|---|---|
| `\text{no solution}` | `\emptyset`, `\text{none}` | `0` |
| `x^2 + C` | `x^2 + k` | `x^2` |
| `\text{even}` | `\text{Even function}` | `\text{uneven}` |
"""

import re
from itertools import permutations

from .notation import LETTER, enclosed, split_top, tidy, unwrap
from .numbers import number
from .statements import has_unknowns, is_name, is_relation, without_restatement

_SET_BUILDER = re.compile(
    r"^\\\{\s*([A-Za-z])\s*(?:\\in\s*(?:\\mathbb\s*\{?\s*R\s*\}?|R)\s*)?(?:\\mid|\||:)(.*)\\\}$", re.DOTALL
)
_INTEGER = re.compile(  # a free integer: n\in\mathbb{Z}, m\text{ an integer}
    r"[\s,;:(|]*(?:\\mid)?\s*(?:\\text\s*\{[^{}]{0,20}\}|where|with|for)?\s*(?<![A-Za-z\\])([a-z])\s*"
    r"(?:\\in\s*\\mathbb\s*\{?\s*Z\s*\}?(?!\s*[\^_/])|(?:\\text\s*\{)?\s*(?:is )?any? integer\s*\}?)\)?"
)
_GAP, _NAMES = r"(?:\\text\s*\{|[{}\s]){0,3}", r"(?<![A-Za-z])[A-Za-z](?:_\w)?(?: ?, ?[A-Za-z](?:_\w)?){0,4}"
_QUANTIFIED = re.compile(  # for all x; for all x\in\mathbb{R}; (n\in\mathbb{N}^*); where A, B are constants
    rf"(?:[\s,;(]|\\text\s*\{{){{1,4}}(?:"
    rf"for (?:all|any|each|every){_GAP}{_NAMES}\s*"
    r"(?:\\in\s*\\mathbb\s*\{?[NZQRC]\}?[^\s\\]{,9}|\\geq\s*[012])?|"
    rf"(?:for|where|with|其中|对)?{_GAP}(?:(?:all|an?|any|every|some|任意) ?)?{_GAP}(?:"
    rf"(?:real |positive |constants? )?{_GAP}{_NAMES}{_GAP}(?:\\in\s*\\mathbb\s*\{{?[NQRC]\}}?[^\s\\]{{,9}}|"
    rf"(?:is|are) (?:[\w-]+ ){{0,4}}?(?:constant|number|real|parameter|(?<=ve )integer)s?|[为是]任?意?\S{{1,2}}数)|"
    rf"(?<=[yehln] )(?:real|positive|arbitrary|constant|integers?|numbers?|\s){{1,5}}\}}?\s*{_NAMES}))[)}}\s]{{0,4}}$"
)


def same_text(one: str, other: str) -> bool:
    """Whether two texts are identical up to white space."""
    return without_blanks(one) == without_blanks(other)


def without_blanks(text: str) -> str:
    """Remove white space, but replace it with `~` between digits, because 3 4 is not 34."""
    return re.sub(r"\s+", "", re.sub(r"(?<=[\d.])\s+(?=[\d.])", "~", text))


# x \in [1, 2) states [1, 2); \{x \mid x > 2\} states x > 2
_MEMBERSHIP = re.compile(
    r"^\s*(?:(?:all\s+)?(?:(?:[A-Za-z]|\\[a-z]+)(?:_\w)?|\([a-z](?:,\s*[a-z])+\))\s*\\in(?![A-Za-z])|[A-Z]\s*=(?=\s*\\\{))"
)
_GROUPED_RESULT = re.compile(r"=\s*\d{1,3}(?:,\d{3})+(?:\.\d+)?$")  # x = 1,234 is not a list
_IT = r"(?:(?:it|y|this|the (?:equation|relation)) )?"
_QUADRANTS = [line.split() for line in ("first I 一", "second II 二", "third III 三", "fourth IV 四")]
_CONVENTIONS = [
    (re.compile(pattern, re.IGNORECASE), meaning)
    for pattern, meaning in [
        (r"\\math(?:bb|bf)\s*\{?\s*R\s*\}?|all real numbers", r"(-\infty,\infty)"),
        (r"\\mathbb\s*\{?R\}?\s*[\^_]\s*\{?\s*(?:\+|>\s*0)\s*\}?", r"(0,\infty)"),
        (r"\\mathbb\s*\{?R\}?\s*_\s*\{?\s*\\geq\s*0\s*\}?", r"[0,\infty)"),
        (
            r"(?:there (?:is|are) )?no (?:real )?(?:solution|root)s?(?: exists?)?(?: ?: ?\\(?:oslash|emptyset))?",
            r"\emptyset",
        ),
        (r"(?:the system is )?inconsistent(?:\W{1,3}no solutions?\)?)?", r"\emptyset"),
        (r"(?:the )?empty set|none|无解|\\\{\s*\\\}", r"\emptyset"),
        (r"(?:(?:the|this) limit )?does not exist|D\.?N\.?E\.?|\\nexists", "does not exist"),
        *(
            (rf"(?:the )?(?:{word} quadrant|quadrant {roman})|第{chinese}象限", f"quadrant {roman}")
            for word, roman, chinese in _QUADRANTS
        ),
        (rf"(?:yes[,;.:]? )?{_IT}(?:is|represents)(?: y as)? a function(?: of x)?", "function"),
        (rf"(?:no[,;.:]? )?{_IT}(?:is|does) ?n[o']t(?: represent)?(?: y as)? a function(?: of x)?", "not a function"),
        (r"正确|对|√", "true"),
        (r"错误?|不正确|不对|×", "false"),
        (
            r"(?:positive )?infinity|\+\s*\\infty|(?:there are |it has |the system has )?(?:an )?"
            r"infinite(?:ly many|(?: number of)?)(?: solutions)?",
            r"\infty",
        ),
    ]
]


def condition(text: str) -> str:
    r"""Rewrite `x \in S` as S, `\{x \mid c\}` as c, the reals as an interval, "no solution" as `\emptyset`."""
    text = without_restatement(_MEMBERSHIP.sub("", tidy(text)).strip())
    text = re.sub(r"^\|\s*([A-Za-z])\s*\|\s*(<|\\leq)\s*([^<>=]+)$", r"-\3 \2 \1 \2 \3", text)
    text = _GROUPED_RESULT.sub(lambda digits: digits.group().replace(",", ""), text)
    phrase = " ".join(unwrap(text).rstrip(".").split())
    for pattern, meaning in _CONVENTIONS:
        if pattern.fullmatch(phrase):
            return meaning
    if is_relation(text):  # x < 1 \lor x > 2
        text = re.sub(r"\\(?:lor|vee|land|wedge)(?![A-Za-z])", ",", text)
    builder = _SET_BUILDER.match(text) if enclosed(text) else None
    text = tidy(builder.group(2) if builder else text)
    parts = split_top(re.sub(r"^\\\{(.*)\\\}$", r"\1", text), ",;")
    gaps = {part: re.sub(r"^([A-Za-z])\s*\\neq(?![A-Za-z])\s*(.+)", r"\2", part) for part in parts}  # x \neq 1, 4
    letters = {part[0] for part, gap in gaps.items() if gap != part}
    if len(letters) == 1 and not any(has_unknowns(gap) for part, gap in gaps.items() if gap == part):
        text = rf"\mathbb{{R}}\setminus\{{{','.join(gaps.values())}\}}"
    return re.sub(r"\\pm\s*([^\s,]+)(?=\s*(?:,|\\\}$))", r"\1,-\1", text) if "setminus" in text else text


def without_integer(gold: str) -> str:
    r"""Remove the condition `k\in\mathbb{Z}` or another quantifier from a gold answer."""
    return _INTEGER.sub("", _QUANTIFIED.sub("", gold)).strip() or gold


_FREE = re.compile(r"(?<![A-Za-z\\])[kmn](?![A-Za-z])")
_NOT_A_FAMILY = re.compile(r"m(?:ax|in) at |[(\[][^()\[\]]*[,;]|\\\{|[<>]|\\[lg]eq|\\c[au]p|\\mid")


def family(text: str) -> tuple[str, str] | None:
    r"""Return the free integer and the values of `2k\pi, k\in\mathbb{Z}`; `None` for other texts."""
    letters = _INTEGER.findall(text)[:1] or (list({*_FREE.findall(text)}) if r"\pi" in text else [])
    values = re.sub(r"^\\\{(?:\s*[a-z]\s*(?:\\mid|\||:))?(.*)\\\}$", r"\1", _INTEGER.sub("", text).strip())
    has_interval = any((brackets := enclosed(part)) and "," in brackets[1] for part in values.split(r"\cup"))
    is_family = len(letters) == 1 and values and not has_interval and not _NOT_A_FAMILY.search(values)
    return (letters[0], values) if is_family else None


_CONSTANT = re.compile(r"\+\s*(?:[CcKk](?:_\{?\d\}?)?|(?:\\text\s*\{\s*)?const(?:ant)?\.?\s*\}?)$")
_NUMBERED = re.compile(r"(?<![A-Za-z\\])[Cc]_(?:\d|\{\d\})")
_CAPITALS = re.compile(r"(?<![A-Za-z\\])[A-DK](?![A-Z_(])")
_NOT_A_VARIABLE = re.compile(  # a set, a command, the left side of f(x) = ... and (x, y) = ...
    r"\\mathbb\{[A-Z]|\\[A-Za-z]+|\([a-z](?:,\s*[a-z])*\)\s*=|(?<![A-Za-z(])[a-z]\s*(?:\([a-z]\)\s*)?="
)
_FUNCTION_HEAD = re.compile(r"^([A-Za-z](?:\^\{-1\}|_\w|_\{\w+\})?)(?:\(([a-z])\))?\s*=")
_DOMAIN = re.compile(  # (x \neq 0), for n \geq 1
    r"(?:[\s,(]+|(?=\\text))(?:(?:\\text\s*\{\s*)?(?:for|where|if|with)\s*\}?\s*)?"
    r"(?:\\?[a-z]+\s*\\neq\s*-?\d+|\|[a-z]\|\s*<\s*\d+|[a-z]\s*\\in\s*\\mathbb\s*\{?R\}?|[kmn]\s*\\geq\s*[012])\)?$"
)


def with_constants_of(gold: str, answer: str) -> list[str]:
    """Return versions of the answer that use the gold's constants, integers and variables, without domains."""
    quantified, answer = _QUANTIFIED.search(answer), _QUANTIFIED.sub("", answer) or answer
    if not is_relation(gold) and (domain := _DOMAIN.search(answer)) and not is_relation(answer[: domain.start()]):
        answer = answer[: domain.start()]
    if re.search(r"\+\s*C$", gold):
        answer = _CONSTANT.sub("+C", answer)
    heads, builder = ([pattern.match(text) for text in (gold, answer)] for pattern in (_FUNCTION_HEAD, _SET_BUILDER))
    gold_head, own_head = heads
    names = [re.sub("[{}]", "", one[1]) for one in heads if one]
    is_same = gold_head and own_head and (names[0] == names[1] or ("y" in names and (gold_head[2] or own_head[2])))
    if gold_head and own_head and is_same and not (gold_head[2] and own_head[2]):
        answer = gold_head[0] + answer[own_head.end() :]
    letters, others = ({*re.findall("[A-Za-z]", _NOT_A_VARIABLE.sub("", text))} for text in (gold, answer))
    if len(added := letters - others) == len(removed := others - letters) == 1 and (
        quantified
        or ("," in gold and added | removed <= {*"rstuv"})
        or [match and match[2] for match in heads] == [min(added), min(removed)]
        or (added <= {*"ck"} and removed <= {*"cCkKA"})
        or (all(builder) and builder[0] and builder[0][1] in added)
    ):
        command_or_letter = rf"\\[A-Za-z]+|{min(removed)}"
        answer = re.sub(command_or_letter, lambda match: min(added) if match[0] in removed else match[0], answer)
    own_integer = _INTEGER.search(answer)
    gold_integer = _INTEGER.search(gold) or (
        own_integer if own_integer and re.search(LETTER.format(own_integer[1]), gold) else None
    )
    if gold_integer and (own_integer := own_integer or gold_integer):
        new, old, bare_answer = gold_integer[1], own_integer[1], _INTEGER.sub("", answer)
        if new != old and re.search(LETTER.format(new), bare_answer):  # already in use
            return [bare_answer]
        counts = (new, f"({new}+1)", f"({new}-1)", f"(-{new})")
        return list(dict.fromkeys(re.sub(LETTER.format(old), count, bare_answer) for count in counts))
    names, given = (
        sorted(set(_NUMBERED.findall(text)), key=lambda name: name.strip("Cc_{}")) for text in (gold, answer)
    )
    if not names and "=" in gold and re.search(r"(?<![A-Za-z\\])C(?![A-Z_(])", gold):
        names = ["C"]
    given = given or sorted(set(_CAPITALS.findall(answer)))
    if not names or len(names) != len(given):
        return [answer]
    either = re.compile(f"{_NUMBERED.pattern}|{_CAPITALS.pattern}")
    orders = permutations(names) if len(names) <= 3 else [names]
    renamings = [dict(zip(given, order, strict=True)) for order in orders]
    renamed = [either.sub(lambda match, to=to: to.get(match[0], match[0]), answer) for to in renamings]  # type: ignore[misc]
    # First try an order that gives the gold's terms, because each comparison may be slow.
    return sorted(renamed, key=lambda one: _terms(one) != _terms(gold))


def _terms(text: str) -> list[str]:
    """Return the sorted terms of a text."""
    return sorted(re.split("[=+-]", re.sub(r"[\s{}]", "", text)))


_BASE = re.compile(  # 1011_2, 1011 in base 2, ff_{16}
    r"\(?([-+]?(?:[0-9A-F]*\d[0-9A-F]*|[0-9A-Fa-f]+(?=\)?\s*_\s*\{?\(?16\b)))\)?\s*"
    r"(?:_\s*(?:\{\s*\(?([^{}()]+?)\)?\s*\}|(\w+))\s*)?(?:\(?\s*(?:in\s+)?base[\s-]*(\w+)\s*\)?)?"
)


def split_base(text: str) -> tuple[str, str | None]:
    """Return the digits and base of `1011_2`, `(1011)_{two}` and `1011 (base 2)`; else the text and `None`."""
    match = _BASE.fullmatch(unwrap(text))
    if match is None or not any(match.groups()[1:]):
        return text, None
    base = next(filter(None, match.groups()[1:]), None)
    value = number(base or "")
    return match.group(1).upper(), base if value is None else str(value)


_CONGRUENCE = re.compile(
    r"(?:(?:(?!mod)[^=<>,]){1,99}\\equiv)?\s*(-?\d{1,99})\s*\(?\s*\\[pb]?mod\s*\{?\s*(\d{1,99})\s*\}?\s*\)?"
)
_COUNTED = re.compile(r"(?:[a-z]\s*=\s*)?(\d{1,99})\s*[a-z]\s*([+-]\s*\d{1,99})?\s*")


def congruence(text: str) -> tuple[int, int] | None:
    r"""Return the residue and modulus, (3, 7) for `x \equiv 10 \pmod{7}` and `3 \bmod 7`; else `None`."""
    match = _CONGRUENCE.fullmatch(text)
    value, modulus = (int(digits) for digits in match.groups()) if match else (0, 0)
    if _INTEGER.search(text) and (residue_class := _COUNTED.fullmatch(_INTEGER.sub("", text))):  # 7k+3, k\in\mathbb{Z}
        modulus, value = int(residue_class[1]), int("".join((residue_class[2] or "0").split()))
    return (value % modulus, modulus) if modulus else None


_NEEDLESS_BRACES = re.compile(r"\{(\w)\}(?!\w)|\{\}(?![\w{])")  # x^{2}, but neither x^{12} nor \{2\}
_ARTICLE = re.compile(
    r"^(?:(?:(?:it|this|that|they|there|the [a-z]+|[a-z](?:\([a-z]\))?)\s+)?(?:is|are)\s+|"
    r"the (?:series|integral|sequence|limit)\s+)?"
    r"(?:on\s+)?(?:(?:the|an?)\s+)?(?=[A-Za-z]{2})",
    re.IGNORECASE,
)
_YES_OR_NO = re.compile(  # yes, it is prime; no, it is not closed
    r"^(yes(?!.*(?:\b(?:not?)\b|n't))|no(?!.*\byes\b))[,.;:]\s(?!.*\b(?:but|if|unless|only|wait|or)\b).*",
    re.IGNORECASE | re.DOTALL,
)
_DIVERGES = re.compile(r"\b(?:(?:does|is) not|doesn't|isn't) converg\w*", re.IGNORECASE)
_KIND = re.compile(
    r"(?<=\w)\s+(?:function|series|sequence|integral|triangle|number|matrix|system|event|condition)s?\.?$",
    re.IGNORECASE,
)
_ENDING = re.compile(r"(?<=[a-z]{5})(?:es?|ed|ent|ence|ing|s)\b")  # convergent, converges
_MONTH = re.compile(r"\b(?:jan|feb|mar|apr|may|june?|july?|aug|sept?|oct|nov|dec)[a-z]*\b\.?", re.IGNORECASE)
_FIGURE = re.compile(r"\\(angle|triangle|overline|overleftrightarrow)\s*\{?\s*([A-Z]{2,3})\s*\}?")


def spelling(text: str) -> str:
    """Return a canonical spelling that ignores spaces and, in words, case and articles."""
    if circled_numbers := re.findall(r"\\textcircled\{\d+\}", text):
        return "".join(circled_numbers)
    if figure := _FIGURE.fullmatch(text):  # angle CBA is angle ABC
        return figure[1] + min(figure[2], figure[2][::-1])
    result = re.sub(r"^\(([A-Za-z])\)$", r"\1", without_blanks(unwrap(text)).rstrip("."))
    if is_words(text):
        words = re.sub(r"^[^不非没或]*?(?:是|为)(?=[一-鿿])", "", unwrap(text).rstrip("."))
        words = re.sub(r"(?<=\w )an? (?=[a-z]{3})", "", words)
        words = _DIVERGES.sub("diverges", words)
        words = _KIND.sub("", _YES_OR_NO.sub(r"\1", _ARTICLE.sub("", words)))
        words = re.sub(r"^neither (?:even nor odd|odd nor even)$", "neither", words)
        words = re.sub(r"^(\w+) (\w+ly)$", r"\2 \1", _ENDING.sub("", words.casefold()))
        if _MONTH.search(words):  # March 5, 5th of March
            words = " ".join(sorted(re.findall(r"[A-Za-z]+|\d+", re.sub(r"(?<=\d)[nrst][dht]\b|\bof\b", "", words))))
        result = without_blanks(words)
        return re.sub(r"(?<=\d):00(?=[ap]\.?m)", "", re.sub(r"[{}]|\.(?!\d)", "", result))
    return _NEEDLESS_BRACES.sub(r"\1", result)


def choice(text: str) -> str | None:
    r"""Return the letter of `C`, `(C)`, `\text{(C)}` and `\textbf{(C)}\ 32`; else `None`."""
    match = re.fullmatch(r"\(?([A-K])\)?\.?|\(([A-K])\)\s*(?:\\\s*)?[^,;]+", unwrap(text))
    return match and (match.group(1) or match.group(2))


_CHOSEN = re.compile(r"[(\[]?\s*([A-Ka-k])\s*(?:[)\].:]|(?=\()|$)(.*)", re.DOTALL)
_CHOICE_NAME = re.compile(r"^(?:(?:correct|right|best|final) )?(?:option|choice|answer|选项?)\s*:?\s*", re.IGNORECASE)
_REJECTED = re.compile(
    r"\b(?:not|false|wrong|incorrect|impossible|except|neither|ruled out|eliminated|trap|as well as|choose)\b|n't\b",
    re.IGNORECASE,
)
# "(A), (B)" chooses no letter; "A. Angle B" chooses A
_SECOND_CHOICE = re.compile(
    r"(?:^|[\s,;(\[])[A-Ka-k]\s*[)\].:]|^\s*(?:,|;|/|\\text)|(?:,|;|^)\s*[A-Ka-k]\s*$|^\s*[A-K]+$"
)


def chooses(answer: str, letter: str) -> bool:
    """Whether an unwrapped answer chooses this letter and no other letter: `(B)`, `B. 12`, `Option B`."""
    if _REJECTED.search(answer):
        return False
    name, equals, value = _CHOICE_NAME.sub("", answer).partition("=")
    match = _CHOSEN.fullmatch(value.strip() if equals and is_name(name) else name + equals + value)
    return match is not None and match.group(1).upper() == letter and not _SECOND_CHOICE.search(match.group(2))


_FUNCTIONS = re.compile(
    r"(?:arc)?(?:sin|cos|tan|cot|sec|csc)h?|log|exp|max|min|lim|gcd|lcm|mod|deg|det|frac|sqrt|sgn|pmatrix|begin|end"
)
_SHORT_WORDS = frozenset({"no", "on", "up", "am", "pm", "yes"})


def is_words(text: str) -> bool:
    """Whether a text must be compared by spelling: `yes`, `2:35 P.M.`, `Not a function`, `IV`."""
    plain = re.sub(r"\\[A-Za-z]+", " ", unwrap(text)).strip().rstrip(".")
    if re.search(r"[一-鿿]|\\textcircled", text) or re.search(r"\d\s*[AaPp]\.?\s?[Mm]\b", plain):
        return True
    if plain.lower() in _SHORT_WORDS or re.fullmatch(r"[A-Za-z]{3,}|[A-Z]{2,}", plain):
        return not _FUNCTIONS.fullmatch(plain)
    runs = [run for run in re.findall(r"[A-Za-z]{4,}", plain) if not _FUNCTIONS.fullmatch(run)]
    return bool(runs)
