"""Check the vLLM stand-ins against vLLM's parameters. If run as a script, read the parameters from a wheel.

    python tests/helpers/vllm_signatures.py vllm-0.30.0-cp38-abi3-manylinux_2_28_x86_64.whl    # make vllm-signatures

vllm_signatures.json contains the parameters of the functions that TRL and this package call (parameters after `*` are
keyword-only), and the fields of vLLM's objects. It omits unused fields and keywords.
"""

import ast
import json
import re
import sys
import zipfile
from pathlib import Path

FILE = Path(__file__).with_suffix(".json")
SOURCES = {
    "vllm/entrypoints/llm.py": ("LLM.__init__", "LLM.generate", "LLM.sleep", "LLM.wake_up", "LLM.reset_prefix_cache"),
    "vllm/engine/arg_utils.py": ("EngineArgs",),  # also parameters of `LLM.__init__`
    "vllm/sampling_params.py": ("SamplingParams",),
    "vllm/outputs.py": ("RequestOutput.__init__", "CompletionOutput"),
    "vllm/logprobs.py": ("Logprob",),
    "vllm/model_executor/models/qwen2.py": ("Qwen2ForCausalLM.load_weights",),
    "vllm/v1/engine/llm_engine.py": ("LLMEngine.add_request",),
    "vllm/distributed/weight_transfer/nccl_common.py": ("trainer_init",),
    "vllm/distributed/weight_transfer/packed_tensor.py": ("packed_nccl_broadcast_producer",),
    "vllm/utils/network_utils.py": ("get_ip",),
}
# Attribute path from an `LLM` to the model whose `load_weights` TRL calls; each file assigns one attribute.
MODEL_PATH = {
    "llm_engine": "vllm/entrypoints/llm.py",
    "model_executor": "vllm/v1/engine/llm_engine.py",
    "driver_worker": "vllm/v1/executor/uniproc_executor.py",
    "model_runner": "vllm/v1/worker/gpu_worker.py",
    "model": "vllm/v1/worker/gpu_model_runner.py",
}


def parameter_names(source, name):
    """Return the parameters of a function or the fields of a class, given its dotted name."""
    node = ast.parse(source)
    for part in name.split("."):
        node = next(child for child in node.body if getattr(child, "name", None) == part)
    if isinstance(node, ast.ClassDef):
        return ["*", *(field.target.id for field in node.body if isinstance(field, ast.AnnAssign))]
    positional = [argument.arg for argument in node.args.args if argument.arg not in ("self", "cls")]
    return [*positional, "*", *(argument.arg for argument in node.args.kwonlyargs)]


def keyword_checker(*callables):
    """Make a function that returns its keyword arguments and raises if `callables` do not accept them."""
    facts = json.loads(FILE.read_text())
    accepted = {name for function in callables for name in facts[function]}

    def make(**arguments):
        assert arguments.keys() <= accepted, (
            f"vLLM does not accept {arguments.keys() - accepted}; for a newer vLLM, run `make vllm-signatures`"
        )
        return arguments

    return make


def main(wheel):
    import trl.generation

    users = [*Path(trl.generation.__file__).parent.glob("vllm_*.py"), *Path("trl_ces").rglob("*.py")]
    used_names = {word for file in users for word in re.findall(r"\w+", file.read_text(encoding="utf-8"))}
    with zipfile.ZipFile(wheel) as archive:
        for attribute, file in MODEL_PATH.items():
            assert f"self.{attribute}" in archive.read(file).decode(), f"{file} does not set `{attribute}`"
        facts = {n: parameter_names(archive.read(file).decode(), n) for file, names in SOURCES.items() for n in names}
    lines = [f'"version": "{Path(wheel).name.split("-")[1]}"']
    for name, parameters in facts.items():
        star = parameters.index("*")
        keywords = [parameter for parameter in parameters[star + 1 :] if parameter in used_names]
        lines.append(f'"{name}": {json.dumps([*parameters[: star + 1], *keywords])}')
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main(sys.argv[1])
