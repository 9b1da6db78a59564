"""
Code that runs in the sandbox: call a program's function on its inputs, or compare its outputs with expected outputs.

The two tasks run in separate processes, and the process of the program never receives the expected outputs. The
program can therefore pass only if it sends correct values. Values are sent as tagged JSON, because decoding JSON runs
no code. The sandbox receives the text of this file, so this file imports only the standard library.
"""

import base64
import cmath
import gzip
import io
import json
import math
import signal
import sys
import time
import types
from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from numbers import Integral, Rational
from typing import Any

_SAFE_INTEGER = 2**53
_COLLECTIONS: dict[str, Any] = {"t": tuple, "s": set, "f": frozenset}
# Relative tolerance that EvalPlus passes to np.allclose.
_RELATIVE = 1e-7


class Opaque:
    """Placeholder for a value that cannot be encoded, such as a generator. It is not equal to any other value."""


def encode(value: Any) -> Any:
    """Convert a value to tagged JSON. Instances of subclasses become instances of the base type."""
    if type(value) in (type(None), bool, str, float):
        return value
    if isinstance(value, Integral):
        number = int(value)
        return number if abs(number) < _SAFE_INTEGER else {"i": hex(number)}
    for kind in (str, float):
        if isinstance(value, kind):
            return kind(value)
    if isinstance(value, list):
        return [encode(item) for item in value]
    for tag, kind in _COLLECTIONS.items():
        if isinstance(value, kind):
            return {tag: [encode(item) for item in value]}
    if isinstance(value, dict):
        return {"d": [[encode(key), encode(item)] for key, item in value.items()]}
    if isinstance(value, complex):
        return {"c": [value.real, value.imag]}
    if isinstance(value, bytes):
        return {"b": value.hex()}
    if isinstance(value, Rational) or (isinstance(value, Decimal) and value.is_finite()):
        ratio = Fraction(value)
        return {"q": [hex(ratio.numerator), hex(ratio.denominator)]}
    return {"o": type(value).__name__}


def decode(value: Any) -> Any:
    """Invert [`encode`]."""
    if isinstance(value, list):
        return [decode(item) for item in value]
    if not isinstance(value, dict):
        return value
    ((tag, content),) = value.items()
    if tag in _COLLECTIONS:
        return _COLLECTIONS[tag](decode(item) for item in content)
    decoders: dict[str, Any] = {
        "d": lambda pairs: {decode(key): decode(item) for key, item in pairs},
        "i": lambda digits: int(digits, 16),
        "c": lambda parts: complex(*parts),
        "b": bytes.fromhex,
        "q": lambda parts: Fraction(int(parts[0], 16), int(parts[1], 16)),
    }
    return decoders[tag](content) if tag in decoders else Opaque()


CONVERSIONS: dict[str | None, Any] = {
    None: lambda output: output,
    "set": set,
    "not_none": lambda output: output if isinstance(output, bool) else output is not None,
}


def solve(job: dict[str, Any], send: Any) -> None:
    """
    Call the program's function on all inputs. Send one line of outputs per group, then a JSON object with the CPU
    seconds of each call (`seconds`) and, for each group, whether equal text implies equal values (`plain`).
    """
    module = types.ModuleType("solution")
    sys.modules["solution"] = module  # `dataclasses` looks up the module by name
    exec(compile(job["code"], "solution.py", "exec"), module.__dict__)
    function, convert = module.__dict__[job["entry_point"]], CONVERSIONS[job["convert"]]
    limits = iter(job["limits"]) if job["limits"] else None
    seconds, plain = [], []
    for inputs in job["groups"]:
        packed, equal_text = io.BytesIO(), True
        # Compress while writing: HumanEval/15 has 150 MB of outputs. With mtime=0, equal outputs have equal bytes.
        with gzip.GzipFile(fileobj=packed, mode="wb", compresslevel=1, mtime=0) as lines:
            for arguments in decode(inputs):
                if limits is not None:  # the parent process also measures the CPU time between these marks
                    send(b"\0")
                    signal.setitimer(signal.ITIMER_PROF, next(limits))  # SIGPROF ends the process
                start = time.process_time()
                output = function(*arguments)
                seconds.append(time.process_time() - start)
                signal.setitimer(signal.ITIMER_PROF, 0)
                if limits is not None:
                    send(b"\0")
                line = json.dumps(encode(convert(output))).encode()
                equal_text = equal_text and b"NaN" not in line and b'{"o"' not in line
                lines.write(line + b"\n")
        plain.append(equal_text)
        send(base64.b64encode(packed.getvalue()) + b"\n")
    send(json.dumps({"seconds": seconds, "plain": plain}).encode() + b"\n")


def unpack(text: str) -> Iterator[Any]:
    """Decode the values in a line of outputs."""
    with gzip.open(io.BytesIO(base64.b64decode(text))) as lines:
        yield from (decode(json.loads(line)) for line in lines)


def compare_outputs(job: dict[str, Any], send: Any) -> None:
    """Send `correct` if every output equals the expected output or an accepted alternative, otherwise `wrong`."""
    accepted = None if job["accepted"] is None else decode(json.loads(job["accepted"]))
    inputs, atol = decode(job["inputs"]), job["atol"]
    correct = True
    for index, (output, expected) in enumerate(zip(unpack(job["outputs"]), unpack(job["expected"]), strict=True)):
        if job["rule"] == "root":
            terms = (coefficient * math.pow(output, power) for power, coefficient in enumerate(inputs[index][0]))
            correct = correct and abs(sum(terms)) <= atol
        else:
            is_accepted = accepted is not None and output == accepted[index]
            correct = correct and (is_accepted or equal_outputs(output, expected, atol))
    send(b"correct" if correct else b"wrong")


def equal_outputs(output: Any, expected: Any, atol: float) -> bool:
    """Compare as EvalPlus does: exactly, or within a tolerance if both values have the same type."""
    if output == expected:
        return True
    items = expected if isinstance(expected, list | tuple) else [expected]
    if atol == 0 and items and all(isinstance(item, float) for item in items):
        atol = 1e-6
    return atol != 0 and type(output) is type(expected) and _near(output, expected, atol)


def _near(output: Any, expected: Any, atol: float) -> bool:
    """Return whether numbers, or lists of numbers, agree within the tolerances."""
    if isinstance(expected, list | tuple):
        if not isinstance(output, list | tuple) or len(output) != len(expected):
            return False
        return all(_near(*pair, atol) for pair in zip(output, expected, strict=True))
    if not all(isinstance(value, int | float | complex) for value in (output, expected)):
        return False
    if cmath.isinf(output) or cmath.isinf(expected):
        return output == expected
    return abs(output - expected) <= atol + _RELATIVE * abs(expected)


def main(payload: bytes, send: Any) -> None:
    """Run the task named in the payload."""
    job = json.loads(payload)
    {"solve": solve, "compare": compare_outputs}[job["task"]](job, send)
