"""`seqlab doctor`"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from seqlab.cli.options import code_option, device

if TYPE_CHECKING:
    import torch

    from seqlab.doctor.selftest import Check, Left


@click.command(epilog="Example: seqlab doctor --device cpu --json > report.json")
@device
@click.option("--test/--no-test", default=True, help="Whether to run the self-test, which takes up to a minute.")
@code_option("A Python file that registers your own classes; they are tested too.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, to attach to a bug report.")
def doctor(device: str, test: bool, code: str | None, as_json: bool) -> None:
    """Report what this machine has and how seqlab computes on it, and test seqlab on a device.

    The self-test runs every cell, language model and translator on the device in float32, and compares the results with
    the CPU in double precision. The exit code is 1 if a check fails. To check data instead, use `seqlab data check`.
    """
    import time

    from seqlab.build import choose_device
    from seqlab.cli.streams import echo_json
    from seqlab.doctor.machine import report

    chosen = choose_device(device)
    if code is not None:
        from seqlab.runs.run import use_code

        use_code(code)
    found: dict[str, Any] = report(chosen)
    if not as_json:
        _print_report(found)
    start = time.perf_counter()
    checks, left = _tested(chosen, quiet=as_json) if test else ([], [])
    failed = sum(not check.ok for check in checks)
    if as_json:
        about = {"device": str(chosen), "failed": failed, "seconds": round(time.perf_counter() - start, 1)}
        listed = {"checks": [check.__dict__ for check in checks], "left_out": [one.__dict__ for one in left]}
        echo_json({**found, "test": {**about, **listed} if test else None})
    elif test:
        _print_summary(checks, failed, time.perf_counter() - start, chosen)
    raise click.exceptions.Exit(1 if failed else 0)


def _tested(device: torch.device, quiet: bool) -> tuple[list[Check], list[Left]]:
    """Run the self-test and print each line as soon as it is known, which also shows the progress."""
    from seqlab.doctor.selftest import Check, not_covered, self_test
    from seqlab.errors import caution

    if left_out := not_covered():
        covered = "the self-test covers cells, language models and translators"
        caution(f"not tested: {', '.join(left_out)} ({covered})")
    if not quiet:
        click.echo(f"\nself-test on {device}: float32 against the CPU in double precision\n")
        click.echo(f"      {'':34}{'':30}   error  allowed")
    checks, left = [], []
    for one in self_test(device):
        if isinstance(one, Check):
            checks.append(one)
        else:
            left.append(one)
        if not quiet:
            click.echo(_line(one))
    return checks, left


def _line(one: Check | Left) -> str:
    from seqlab.doctor.selftest import Left

    if isinstance(one, Left):
        return f"--    {one.subject:34}not tested: {one.reason}"
    figures = f"{one.error:8.1e} {one.allowed:8.1e}" if one.error != float("inf") else f"{'–':>8} {'–':>8}"
    return f"{'ok' if one.ok else 'FAIL':6}{one.subject:34}{one.name:30}{figures}  {one.note}".rstrip()


def _print_summary(checks: list[Check], failed: int, seconds: float, device: torch.device) -> None:
    passed = len(checks) - failed
    click.echo(f"\n{passed} of {len(checks)} checks passed on {device} in {seconds:.0f} s")
    if not failed:
        return
    from seqlab import registry

    click.echo("Do not trust results that depend on what failed.")
    own = {f"{family} {name}" for family, name in registry.own_names()}
    if any(not check.ok and check.subject not in own for check in checks):
        click.echo("Attach `seqlab doctor --json` to a bug report.")
    else:
        click.echo("Only classes of your own did: correct them (docs/own-classes.md).")


def _print_report(found: dict[str, Any]) -> None:
    from seqlab.data.progress import readable_size as size

    versions, processor, memory, cache = (found[name] for name in ("versions", "processor", "memory", "cache"))
    installed = [f"{name} {version}" for name, version in versions.items() if version is not None]
    missing = [name for name, version in versions.items() if version is None]
    _say("versions", ", ".join(installed) + (f"; not installed: {', '.join(missing)}" if missing else ""))
    _say("system", found["system"]["name"])
    if found["system"]["variables"]:
        _say("variables", ", ".join(f"{name}={value}" for name, value in found["system"]["variables"].items()))
    cores = f"{processor['usable_cores']} of {processor['cores']} cores usable, torch threads: {processor['threads']}"
    _say("processor", f"{processor['name']}, {processor['torch_instructions']}, {cores}")
    sizes = {"": memory["bytes"], " available": memory["available"], " limit of the container": memory["limit"]}
    _say("memory", ", ".join(f"{size(value)}{name}" for name, value in sizes.items() if value) or "unknown")
    for one in found["devices"]:
        _say(one["device"], f"{one['name']}, {size(one['bytes'])}")
    if not found["devices"]:
        _say("GPU", "none")
    _say("compiler", _compiler(found["compiler"]))
    if cache["folder"] is None:
        _say("cache", f"none: {cache['problem']}")
    else:
        can = "writable" if cache["writable"] else f"NOT writable ({cache['problem']}): set SEQLAB_CACHE"
        limit = "no limit" if cache["limit"] is None else f"limit {size(cache['limit'])}"
        _say("cache", f"{cache['folder']}, {can}, {size(cache['bytes'])} ({limit}), {size(cache['free'])} free")
    default = ", the device that `auto` chooses" if found["device"] == found["default_device"] else ""
    click.echo(f"\non {found['device']}{default}:")
    for path in found["paths"]:
        _say(path["what"], path["how"] + (f": {path['advice']}" if path["advice"] else ""), 26)


def _compiler(about: dict[str, Any]) -> str:
    if about["found"] is None or not about["decoding"]:
        return "; ".join(about["problems"]) or "none"
    tools = about["found"]
    used = ", ".join(tools["instructions"]) or "no special vector instructions"
    made = f"compiled now in {about['seconds']:.0f} s" if about["compiled_now"] else "from the cache"
    return f"{tools['compiler']} ({tools['version']}), OpenMP, {tools['architecture']}: {used}; kernels {made}"


def _say(name: str, text: str, width: int = 11) -> None:
    click.echo(f"{name:{width}} {text}")
