"""
Mutants of a module: its source with one small change, which the tests should notice.

Changes numbers, booleans, comparisons, arithmetic, `and`, `or`, `not`, conditions, slice bounds, min and max and the
like, return values, and drops statements that are only a call. Leaves strings alone, and everything inside `raise`,
logger calls, assertions (including zip's `strict`), annotations, decorators and docstrings: they affect what a person
reads, not numbers.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

COMPARISONS: dict[type, list[type]] = {
    ast.Lt: [ast.LtE, ast.GtE],
    ast.LtE: [ast.Lt, ast.Gt],
    ast.Gt: [ast.GtE, ast.LtE],
    ast.GtE: [ast.Gt, ast.Lt],
    ast.Eq: [ast.NotEq],
    ast.NotEq: [ast.Eq],
    ast.Is: [ast.IsNot],
    ast.IsNot: [ast.Is],
    ast.In: [ast.NotIn],
    ast.NotIn: [ast.In],
}
ARITHMETIC: dict[type, list[type]] = {
    ast.Add: [ast.Sub],
    ast.Sub: [ast.Add],
    ast.Mult: [ast.Div],
    ast.Div: [ast.Mult],
    ast.FloorDiv: [ast.Div, ast.Mult],
    ast.Mod: [ast.Mult],
    ast.Pow: [ast.Mult],
    ast.BitAnd: [ast.BitOr],
    ast.BitOr: [ast.BitAnd],
    ast.LShift: [ast.RShift],
    ast.RShift: [ast.LShift],
}
COUNTERPARTS = [("min", "max"), ("any", "all"), ("minimum", "maximum"), ("amin", "amax"), ("argmin", "argmax")]
COUNTERPARTS += [("floor", "ceil"), ("startswith", "endswith"), ("lstrip", "rstrip"), ("isdigit", "isalpha")]
OPPOSITE = dict(COUNTERPARTS) | {right: left for left, right in COUNTERPARTS}
LEFT_ALONE = (ast.Raise, ast.Assert, ast.Import, ast.ImportFrom)


@dataclass(frozen=True)
class Mutant:
    """One change. `before` and `after` are the changed line as `ast.unparse` writes it."""

    function: str
    first_line: int
    last_line: int
    before: str
    after: str
    source: str

    @property
    def name(self) -> tuple[str, str, str]:
        """Identifies the mutant independently of edits elsewhere in the file."""
        return self.function, self.before, self.after


@dataclass(frozen=True)
class Place:
    """The place of a node in the tree."""

    owner: ast.AST
    field: str
    index: int | None

    def put(self, value: Any) -> Any:
        """Sets the value and returns the old one."""
        if self.index is None:
            old = getattr(self.owner, self.field)
            setattr(self.owner, self.field, value)
        else:
            values = getattr(self.owner, self.field)
            old, values[self.index] = values[self.index], value
        return old


def mutants(source: str, with_source: bool = True) -> Iterator[Mutant]:
    """All mutants of a module. `with_source=False` omits their sources, which take most of the time."""
    tree = ast.parse(source)
    for function, statement, place, old, new in changes(tree, "module", tree):
        before = ast.unparse(statement).splitlines()
        place.put(new)
        after = ast.unparse(new if old is statement else statement).splitlines()
        text = ast.unparse(ast.fix_missing_locations(tree)) if with_source else ""
        place.put(old)
        node = old if hasattr(old, "lineno") else place.owner
        line = next((n for n, (a, b) in enumerate(zip(before, after, strict=False)) if a != b), 0)
        yield Mutant(function, node.lineno, node.end_lineno, before[line].strip(), after[line].strip(), text)


def changes(node: ast.AST, function: str, statement: ast.AST) -> Iterator[tuple[str, ast.AST, Place, Any, Any]]:
    """Yields (function, statement, place, old, new) for each change at or below a node."""
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns", "decorator_list"):
            continue
        for index, child in enumerate(value) if isinstance(value, list) else [(None, value)]:
            if not isinstance(child, ast.AST) or is_left_alone(child):
                continue
            here = child if isinstance(child, ast.stmt) else statement
            inner = function
            if isinstance(child, ast.FunctionDef | ast.ClassDef):
                inner = child.name if function == "module" else f"{function}.{child.name}"
            place = Place(node, field, index)
            for new in replacements(child):
                yield inner, here, place, child, new
            yield from parts(child, inner, here)
            yield from changes(child, inner, here)


def is_left_alone(node: ast.AST) -> bool:
    if isinstance(node, ast.keyword) and node.arg == "strict":  # of zip: an assertion
        return True
    if isinstance(node, ast.Expr):
        if isinstance(node.value, ast.Constant):  # a docstring
            return True
        return isinstance(node.value, ast.Call) and ast.unparse(node.value.func).startswith(("logger.", "warnings."))
    return isinstance(node, LEFT_ALONE)


def replacements(node: ast.AST) -> Iterator[Any]:
    """What may replace a node."""
    match node:
        case ast.Constant(value=bool() as value):
            yield ast.Constant(not value)
        case ast.Constant(value=int() as value):
            yield ast.Constant(value + 1)
            yield ast.Constant(value - 1)
        case ast.Constant(value=float() as value):
            yield ast.Constant(value + 1)
        case ast.UnaryOp(operand=operand):
            yield operand
        case ast.BoolOp(op=op, values=values):
            yield ast.BoolOp(ast.Or() if isinstance(op, ast.And) else ast.And(), values)
            for left_out in range(len(values)):
                rest = values[:left_out] + values[left_out + 1 :]
                yield rest[0] if len(rest) == 1 else ast.BoolOp(op, rest)
        case ast.Name(id=name) if name in OPPOSITE:
            yield ast.Name(OPPOSITE[name], node.ctx)
        case ast.Attribute(attr=name) if name in OPPOSITE:
            yield ast.Attribute(node.value, OPPOSITE[name], node.ctx)
        case ast.keyword(arg=name) if name in OPPOSITE:
            yield ast.keyword(OPPOSITE[name], node.value)
        case ast.Break():
            yield ast.Continue()
        case ast.Continue():
            yield ast.Break()
        case ast.Expr():
            yield ast.Pass()


def parts(node: ast.AST, function: str, statement: ast.AST) -> Iterator[tuple[str, ast.AST, Place, Any, Any]]:
    """Changes of a node's operators, conditions and bounds, which are not nodes with a place of their own."""

    def change(field: str, new: Any, index: int | None = None) -> tuple[str, ast.AST, Place, Any, Any]:
        old = getattr(node, field)
        return function, statement, Place(node, field, index), old if index is None else old[index], new

    match node:
        case ast.Compare(ops=ops):
            for index, op in enumerate(ops):
                yield from (change("ops", other(), index) for other in COMPARISONS[type(op)])
        case ast.BinOp(op=op) | ast.AugAssign(op=op):
            yield from (change("op", other()) for other in ARITHMETIC.get(type(op), []))
        case ast.If(test=test) | ast.IfExp(test=test) | ast.While(test=test):
            if not is_negated_elsewhere(test):
                yield change("test", ast.UnaryOp(ast.Not(), test))
        case ast.comprehension(ifs=ifs):
            for index, test in enumerate(ifs):
                if not is_negated_elsewhere(test):
                    yield change("ifs", ast.UnaryOp(ast.Not(), test), index)
        case ast.Return(value=value) if value is not None and not isinstance(value, ast.Constant):
            yield change("value", ast.Constant(None))
        case ast.Slice(lower=lower, upper=upper):
            yield from (change(field, None) for field, bound in (("lower", lower), ("upper", upper)) if bound)


def is_negated_elsewhere(test: ast.AST) -> bool:
    """Whether another change already negates this condition."""
    is_constant = isinstance(test, ast.Constant)
    is_not = isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)
    return is_constant or is_not or (isinstance(test, ast.Compare) and len(test.ops) == 1)
