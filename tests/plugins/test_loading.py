"""What is found, in which order, and what becomes of plugins that are broken."""

from __future__ import annotations

import logging
import textwrap
import threading
from itertools import permutations
from pathlib import Path

import pytest

from hermes_core import hookimpl
from hermes_core.plugins import load
from tests.plugins.support import Installer, hooks_of, plugin

GOOD = """
    from hermes_core import hookimpl

    @hookimpl
    def on_gateway_start(): ...
"""
LINE = """
    from hermes_core import Adapter, Platform, Settings, hookimpl

    class LineAdapter(Adapter):
        @hookimpl
        async def connect(self): ...

        @hookimpl
        async def send(self, message): ...

    @hookimpl
    def platforms():
        return [Platform(name=NAME, adapter=LineAdapter, settings=Settings, max_length=2000)]
"""


def line(name: str) -> str:
    return textwrap.dedent(LINE).replace("NAME", repr(name))


def reason(site: Installer, name: str) -> str:
    """Why `name` is quarantined."""
    return {broken.name: broken.reason for broken in load(path=site.path).quarantined}[name]


def test_order_is_that_of_the_distributions_names(site: Installer) -> None:
    for name in ("hermes-plugin-b", "hermes-plugin-c", "hermes-plugin-a"):
        site.install(name, GOOD)
    plugins = load(path=site.path).plugins
    assert [(plugin.name, plugin.order) for plugin in plugins] == [("a", 0), ("b", 1), ("c", 2)]


def test_a_plugin_carries_what_its_distribution_says(site: Installer) -> None:
    header = "Project-URL: Home, https://a.example\nProject-URL: Bug Tracker, https://b.example"
    site.install("hermes-plugin-line", line("line"), version="1.2", header=header)
    (found,) = load(path=site.path).plugins
    assert (found.distribution, found.version) == ("hermes-plugin-line", "1.2")
    assert found.tracker == "https://b.example"
    assert found.platforms == ("line",)
    assert found.label == "line (hermes-plugin-line 1.2)"


def test_the_first_distribution_on_the_path_hides_others_of_its_name(
    site: Installer, tmp_path: Path
) -> None:
    site.install("hermes-plugin-a", GOOD, version="2.0")
    other = Installer(tmp_path / "other")
    other.directory.mkdir()
    other.install("hermes-plugin-a", GOOD, version="1.0")
    (found,) = load(path=[*site.path, *other.path]).plugins
    assert found.version == "2.0"


def test_a_distribution_with_our_prefix_and_no_plugin_is_foreign(site: Installer) -> None:
    site.install("hermes-plugin-other", point="", version="9")
    loaded = load(path=site.path)
    assert [(other.distribution, other.version) for other in loaded.foreign] == [
        ("hermes-plugin-other", "9")
    ]
    assert not loaded.plugins
    assert not loaded.quarantined


def test_disabled_by_the_name_of_plugin_or_distribution(site: Installer) -> None:
    for name in ("hermes-plugin-a", "hermes-plugin-b", "hermes-plugin-c"):
        site.install(name, GOOD)
    loaded = load(path=site.path, disabled=["a", "hermes-plugin-b"])
    assert [plugin.name for plugin in loaded.plugins] == ["c"]
    assert [(out.name, out.reason) for out in loaded.left_out] == [
        ("a", "disabled"),
        ("b", "disabled"),
    ]


def test_a_disabled_name_that_nobody_has_is_told(
    site: Installer, caplog: pytest.LogCaptureFixture
) -> None:
    load(path=site.path, disabled=["nobody"])
    assert "nobody is not installed" in caplog.text


def test_safe_mode_loads_console_and_echo_only(
    site: Installer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("hermes-plugin-console", "hermes-plugin-echo", "hermes-plugin-line"):
        site.install(name, GOOD)
    monkeypatch.setenv("HERMES_SAFE_MODE", "1")
    loaded = load(path=site.path)
    assert [plugin.name for plugin in loaded.plugins] == ["console", "echo"]
    assert [(out.name, out.reason) for out in loaded.left_out] == [("line", "safe mode")]


def test_required_plugins_that_do_not_run_are_named(site: Installer) -> None:
    site.install("hermes-plugin-good", GOOD)
    site.install("hermes-plugin-bad", "raise ImportError")
    required = ["good", "hermes-plugin-good", "bad", "absent"]
    assert hooks_of(required=required).missing_required == tuple(required)
    assert load(path=site.path, required=required).missing_required == ("bad", "absent")


@pytest.mark.case("PL-01")
def test_a_broken_plugin_leaves_the_good_ones_alone(site: Installer) -> None:
    site.install("hermes-plugin-a", "import nothing_of_that_name")
    site.install("hermes-plugin-good", GOOD)
    site.install("hermes-plugin-z", "def (")
    loaded = load(path=site.path)
    assert [plugin.name for plugin in loaded.plugins] == ["good"]
    first, second = loaded.quarantined
    assert (first.name, first.distribution, first.version) == ("a", "hermes-plugin-a", "1.0")
    assert "from hermes_plugin_a: ModuleNotFoundError: No module named" in first.reason
    assert "hermes_plugin_a.py" in first.details
    assert "SyntaxError" in second.reason


@pytest.mark.case("PL-02")
@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("missing_module", "No module named 'missing_module'"),
        ("hermes_plugin_a:missing", "has no attribute 'missing'"),
        ("hermes_plugin_a:nothing", "is a NoneType with no method"),
        ("hermes_plugin_a:number", "is an int with no method"),
        ("hermes_plugin_a:Needy", "is a class"),
        ("hermes_plugin_a:generator", "is a generator with no method"),
        ("hermes_plugin_a", "has no function that is marked @hookimpl"),
    ],
)
def test_an_entry_point_that_leads_nowhere(site: Installer, target: str, expected: str) -> None:
    source = """
        nothing, number, generator = None, 1, (n for n in ())

        class Needy:
            def __init__(self, argument): ...
    """
    site.install("hermes-plugin-a", source, target=target)
    site.install("hermes-plugin-good", GOOD)
    assert expected in reason(site, "a")
    assert [plugin.name for plugin in load(path=site.path).plugins] == ["good"]


@pytest.mark.case("PL-02")
def test_the_metadata_of_a_half_removed_distribution(site: Installer) -> None:
    site.install("hermes-plugin-a", GOOD)
    (site.directory / "hermes_plugin_a-1.0.dist-info" / "METADATA").unlink()
    (broken,) = load(path=site.path).quarantined
    assert (broken.name, broken.distribution, broken.version) == ("a", "hermes-plugin-a", "1.0")
    assert "its metadata is gone" in broken.reason


@pytest.mark.case("PL-04")
@pytest.mark.parametrize("raised", ["SystemExit(3)", "KeyboardInterrupt", "GeneratorExit"])
def test_an_import_cannot_end_the_process(site: Installer, raised: str) -> None:
    site.install("hermes-plugin-a", f"raise {raised}")
    assert raised.partition("(")[0] in reason(site, "a")


@pytest.mark.case("PL-04")
def test_a_declaration_cannot_end_the_process() -> None:
    @hookimpl
    def platforms() -> None:
        raise SystemExit(4)

    hooks = hooks_of(plugin(platforms=platforms))
    assert not hooks.plugins
    assert hooks.quarantined[0].reason == "platforms raised SystemExit: 4"


@pytest.mark.case("PL-09")
@pytest.mark.parametrize("names", [("demo", "demo"), ("Demo", "demo"), ("demo", "Demo")])
def test_the_first_in_order_keeps_a_platform_name(
    site: Installer, monkeypatch: pytest.MonkeyPatch, names: tuple[str, str]
) -> None:
    outcomes = []
    for number, order in enumerate(permutations([("first", names[0]), ("second", names[1])])):
        place = Installer(site.directory / str(number))
        place.directory.mkdir()
        monkeypatch.syspath_prepend(place.directory)
        for name, platform in order:
            place.install(f"hermes-plugin-{name}{number}", line(platform), point=name)
        loaded = load(path=place.path)
        (broken,) = loaded.quarantined
        assert list(loaded.platforms) == [names[0]]
        assert f"taken by first (hermes-plugin-first{number} 1.0)" in broken.reason
        assert broken.distribution == f"hermes-plugin-second{number}"
        outcomes.append((loaded.plugins[0].name, broken.name))
    assert outcomes == [("first", "second")] * 2


def test_nothing_of_a_plugin_with_a_taken_name_is_active() -> None:
    @hookimpl
    def on_gateway_start() -> None:
        raise NotImplementedError

    first = plugin("same", on_gateway_start=on_gateway_start)
    hooks = hooks_of(first, ("same", plugin(on_gateway_start=on_gateway_start)))
    assert len(hooks.plugins) == 1
    assert "the plugin name 'same' is taken by same" in hooks.quarantined[0].reason


@pytest.mark.case("PL-11")
@pytest.mark.parametrize(
    ("requirement", "expected"),
    [
        ("hermes-gateway[hooks-1]>=99", "needs hermes-gateway >=99, this is 0.1"),
        ("hermes_gateway [hooks-1] (<0.1)", "needs hermes-gateway <0.1, this is 0.1"),
        ("hermes-gateway[hooks-1]>=!", "cannot be read: 'hermes-gateway[hooks-1]>=!'"),
        ("hermes-gateway[hooks-1]; python > ", "has a requirement that cannot be read"),
        ("hermes-gateway[hooks-99]", "needs hook API 99, this is 1."),
        ("hermes-gateway>=0.1", "does not say which hook API it was written for"),
        ("hermes-gateway[hooks-1]; extra == 'x'", "does not say which hook API"),
        ("hermes-gateway-tools[hooks-1]", "does not say which hook API"),
    ],
)
def test_a_plugin_for_another_core_is_not_imported(
    site: Installer, requirement: str, expected: str
) -> None:
    source = "from pathlib import Path\nPath(__file__).with_name('imported').touch()"
    site.install("hermes-plugin-a", source, requires=[requirement])
    site.install("hermes-plugin-good", GOOD, requires=["requests", *("hermes-gateway[hooks-1]",)])
    assert expected in reason(site, "a")
    assert not (site.directory / "imported").exists()
    assert [plugin.name for plugin in load(path=site.path).plugins] == ["good"]


@pytest.mark.case("PL-11")
def test_a_plugin_that_needs_a_hook_of_a_later_api(site: Installer) -> None:
    site.install("hermes-plugin-a", GOOD.replace("on_gateway_start", "on_moon_phase"))
    assert "hook on_moon_phase, which hook API 1." in reason(site, "a")


@pytest.mark.case("PL-14")
def test_a_slow_import_is_named_while_it_lasts(
    site: Installer, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = threading.Event()

    class Watch(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "slow (hermes-plugin-slow 1.0) is still being imported" in record.getMessage():
                named.set()

    monkeypatch.setattr(threading, "named_by_test", named, raising=False)
    caplog.set_level(logging.WARNING)
    watch = Watch()
    logging.getLogger().addHandler(watch)
    try:
        site.install("hermes-plugin-good", GOOD)
        wait = "\n    import threading\n    assert threading.named_by_test.wait(30)\n"
        site.install("hermes-plugin-slow", wait + GOOD)
        loaded = load(path=site.path, patience=0.01)
    finally:
        logging.getLogger().removeHandler(watch)
    assert [plugin.name for plugin in loaded.plugins] == ["good", "slow"]
    assert loaded.plugins[1].seconds > loaded.plugins[0].seconds
