"""
The program in the sandbox: it solves (calls a program's function on its inputs) or compares (outputs with expected).

The two never share a process, and solving never sees the expected outputs: whatever a program does to its process, it
passes only if the values that it sends are correct. Values travel as tagged JSON, so reading them runs no code. The
sandbox gets this file's text, which imports the standard library only.
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
_AS_THEY_ARE = (type(None), bool, str, float)
# Relative tolerance that EvalPlus passes to np.allclose.
_RELATIVE = 1e-7


class Opaque:
    """A value that cannot be sent, such as a generator. It equals nothing."""


def encode(value: Any) -> Any:
    """The value as tagged JSON; subclasses become their base type."""
    kind = type(value)
    if kind in _AS_THEY_ARE or (kind is int and -_SAFE_INTEGER < value < _SAFE_INTEGER):
        return value
    if isinstance(value, str):
        return str(value)
    if isinstance(value, float):
        return float(value)
    if isinstance(value, Integral):
        number = int(value)
        return number if abs(number) < _SAFE_INTEGER else {"i": hex(number)}
    if isinstance(value, list):
        return [encode(item) for item in value]
    for kind, tag in ((tuple, "t"), (set, "s"), (frozenset, "f")):
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
    """The value that [`encode`] was given."""
    if isinstance(value, list):
        return [decode(item) for item in value]
    if not isinstance(value, dict):
        return value
    ((tag, content),) = value.items()
    if tag == "d":
        return {decode(key): decode(item) for key, item in content}
    if tag in ("t", "s", "f"):
        return {"t": tuple, "s": set, "f": frozenset}[tag](decode(item) for item in content)
    if tag == "i":
        return int(content, 16)
    if tag == "c":
        return complex(*content)
    if tag == "b":
        return bytes.fromhex(content)
    if tag == "q":
        return Fraction(int(content[0], 16), int(content[1], 16))
    return Opaque()


CONVERSIONS: dict[str | None, Any] = {
    None: lambda output: output,
    "set": set,
    "not_none": lambda output: output if isinstance(output, bool) else output is not None,
}


def solve(job: dict[str, Any], send: Any) -> None:
    """Calls the program's function; sends a frame of outputs per group of inputs, then a frame of notes: CPU seconds
    of each call, and for each group whether equal text means equal values."""
    module = types.ModuleType("solution")
    sys.modules["solution"] = module  # dataclasses look there
    exec(compile(job["code"], "solution.py", "exec"), module.__dict__)
    function, convert = module.__dict__[job["entry_point"]], CONVERSIONS[job["convert"]]
    limits = iter(job["limits"]) if job["limits"] else None
    spent, plain = [], []
    for inputs in job["groups"]:
        packed, equal_text = io.BytesIO(), True
        # Compressed on the fly: HumanEval/15 has 150 MB of outputs. No date: equal outputs are equal bytes.
        with gzip.GzipFile(fileobj=packed, mode="wb", compresslevel=1, mtime=0) as lines:
            for arguments in decode(inputs):
                if limits is not None:
                    signal.setitimer(signal.ITIMER_PROF, next(limits))  # its signal ends the process
                begun = time.process_time()
                output = function(*arguments)
                spent.append(time.process_time() - begun)
                signal.setitimer(signal.ITIMER_PROF, 0)
                line = json.dumps(encode(convert(output))).encode()
                equal_text = equal_text and b"NaN" not in line and b'{"o"' not in line
                lines.write(line + b"\n")
        plain.append(equal_text)
        send(frame(packed.getvalue()))
    send(frame(json.dumps({"seconds": spent, "plain": plain}).encode()))


def frame(data: bytes) -> bytes:
    """The data, prefixed with its length."""
    return len(data).to_bytes(8, "big") + data


def frames(data: bytes) -> list[bytes]:
    """The complete frames, still compressed: untrusted ones are unpacked only in the sandbox."""
    found, place = [], 0
    while place + 8 <= len(data):
        end = place + 8 + int.from_bytes(data[place : place + 8], "big")
        if end > len(data):
            break
        found.append(data[place + 8 : end])
        place = end
    return found


def unpack(text: str) -> Iterator[Any]:
    """Yields the values in a base64-encoded frame."""
    with gzip.open(io.BytesIO(base64.b64decode(text))) as lines:
        yield from (decode(json.loads(line)) for line in lines)


def compare_outputs(job: dict[str, Any], send: Any) -> None:
    """Sends `right` if every output is the expected or another accepted one."""
    accepted = None if job["accepted"] is None else decode(json.loads(job["accepted"]))
    inputs, atol = decode(job["inputs"]), job["atol"]
    right = True
    for place, (output, wanted) in enumerate(zip(unpack(job["outputs"]), unpack(job["expected"]), strict=True)):
        if job["rule"] == "root":
            values = (coefficient * math.pow(output, power) for power, coefficient in enumerate(inputs[place][0]))
            right = right and abs(sum(values)) <= atol
        else:
            also = accepted is not None and output == accepted[place]
            right = right and (also or equal_outputs(output, wanted, atol))
    send(b"right" if right else b"wrong")


def equal_outputs(output: Any, wanted: Any, atol: float) -> bool:
    """EvalPlus' equality: exact, or within tolerance for numbers of the same type."""
    if output == wanted:
        return True
    if atol == 0 and is_floats(wanted):
        atol = 1e-6
    return atol != 0 and type(output) is type(wanted) and near(output, wanted, atol)


def is_floats(value: Any) -> bool:
    """Whether it is a float, or a non-empty list or tuple of floats."""
    if isinstance(value, list | tuple):
        return bool(value) and all(isinstance(item, float) for item in value)
    return isinstance(value, float)


def near(output: Any, wanted: Any, atol: float) -> bool:
    """Whether numbers, or lists of numbers, are within the tolerances."""
    if isinstance(wanted, list | tuple):
        if not isinstance(output, list | tuple) or len(output) != len(wanted):
            return False
        return all(near(one, other, atol) for one, other in zip(output, wanted, strict=True))
    if not all(isinstance(value, int | float | complex) for value in (output, wanted)):
        return False
    if cmath.isinf(output) or cmath.isinf(wanted):
        return output == wanted
    return abs(output - wanted) <= atol + _RELATIVE * abs(wanted)


def main(payload: bytes, send: Any) -> None:
    """Entry point in the sandbox."""
    job = json.loads(payload)
    {"solve": solve, "compare": compare_outputs}[job["task"]](job, send)
