"""What is refused in a plugin's module or an adapter, and how the refusal reads."""

from __future__ import annotations

import logging
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any
from unittest.mock import Mock

import pytest

from hermes_core import Adapter, Outbound, Platform, PluginError, Receipt, Settings, hookimpl
from hermes_core.plugins import AdapterCalls, normalizer
from tests.plugins.support import hooks_of, plugin

NEEDED: Any = None


class Base(Adapter[Settings]):
    @hookimpl
    async def connect(self) -> None: ...

    @hookimpl
    async def send(self, message: Outbound) -> Receipt:
        raise NotImplementedError


def platform(adapter: type[Adapter[Settings]], **facts: Any) -> Platform:
    return Platform("demo", adapter, Settings, **{"max_length": 100, **facts})


def reason(*functions: Callable[..., object], **named: Any) -> str:
    """Why a plugin with these functions is quarantined."""
    found = {function.__name__: function for function in functions}
    hooks = hooks_of(plugin(**{**found, **named}))
    assert not hooks.plugins
    return hooks.quarantined[0].reason


def declared(value: object) -> str:
    """Why a plugin that declares this as its platforms is quarantined."""

    @hookimpl
    def platforms() -> object:
        return value

    return reason(platforms)


@pytest.mark.case("PL-13")
def test_a_misspelt_hook_is_refused_with_the_nearest_one() -> None:
    @hookimpl
    def on_mesage_received() -> None: ...

    @hookimpl
    def on_turn_end() -> None: ...

    assert reason(on_mesage_received, on_turn_end) == (
        "on_mesage_received implements the hook on_mesage_received, which hook API 1.0 does not "
        "have (did you mean on_message_received?)"
    )


@pytest.mark.case("PL-13")
def test_an_optional_hook_that_this_core_lacks_is_accepted() -> None:
    @hookimpl(optionalhook=True)
    def on_moon_phase() -> None: ...

    @hookimpl
    def on_turn_end() -> None: ...

    hooks = hooks_of(plugin(on_moon_phase=on_moon_phase, on_turn_end=on_turn_end))
    assert len(hooks.plugins) == 1


def test_an_unknown_argument_is_refused_with_the_nearest_one() -> None:
    @hookimpl
    def on_turn_end(scope: object, trun: object) -> None: ...

    assert reason(on_turn_end) == (
        "on_turn_end takes 'trun', which on_turn_end(scope, turn) does not have "
        "(did you mean turn?)"
    )


def test_an_unknown_argument_with_a_default_is_for_a_later_core() -> None:
    @hookimpl
    def on_turn_end(turn: object, cost: float = 0.0) -> None: ...

    assert not hooks_of(plugin(on_turn_end=on_turn_end)).quarantined


def test_arguments_have_to_have_plain_names() -> None:
    @hookimpl
    def on_turn_end(*, turn: object) -> None: ...

    @hookimpl
    def on_turn_start(**facts: object) -> None: ...

    @hookimpl
    def on_delivered(delivery: object, /) -> None: ...

    text = reason(on_turn_end, on_turn_start, on_delivered)
    assert text.count("arguments are passed as plain names") == 3


def test_what_is_not_a_plain_function_is_refused() -> None:
    @hookimpl
    async def platforms() -> list[Platform]:
        return []

    @hookimpl
    def on_turn_start() -> Iterator[None]:
        yield

    @hookimpl
    async def on_turn_end() -> AsyncIterator[None]:
        yield

    @hookimpl(wrapper=True)
    def on_delivered() -> Iterator[None]:
        yield

    @hookimpl
    class authorize: ...  # noqa: N801

    text = reason(platforms, on_turn_start, on_turn_end, on_delivered, authorize)
    assert "platforms is async; platforms is called as a plain function" in text
    assert "on_turn_start is a generator" in text
    assert "on_turn_end is a generator" in text
    assert "on_delivered is a wrapper; hooks of Hermes have no wrappers" in text
    assert "authorize is marked @hookimpl and is not a function" in text


def test_hooks_of_adapters_do_not_belong_in_a_module() -> None:
    @hookimpl
    def send() -> None: ...

    assert "send is a method of an adapter" in reason(send)


def test_a_function_that_is_not_marked_is_told(caplog: pytest.LogCaptureFixture) -> None:
    @hookimpl
    def on_turn_end() -> None: ...

    def on_turn_start() -> None: ...

    module = plugin(on_turn_end=on_turn_end, on_turn_start=on_turn_start)
    on_turn_start.__module__ = module.__name__
    with caplog.at_level(logging.WARNING):
        hooks_of(module)
    assert "on_turn_start is not marked @hookimpl and is not called" in caplog.text


def test_a_module_may_hold_anything() -> None:
    class Proxy:
        def __getattribute__(self, name: str) -> object:
            raise RuntimeError("no context")

    @hookimpl
    def on_turn_end() -> None: ...

    assert len(hooks_of(plugin(on_turn_end=on_turn_end, proxy=Proxy(), mocked=Mock())).plugins) == 1


def test_an_instance_may_be_a_plugin() -> None:
    class Plugin:
        @hookimpl
        def on_turn_end(self, turn: object) -> None: ...

        @hookimpl
        @staticmethod
        def on_turn_start() -> None: ...

        @hookimpl(specname="on_delivered")
        def told(self) -> None: ...

    assert len(hooks_of(Plugin()).plugins) == 1


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, "platforms returned None, not a list of Platform"),
        ([1], "platforms returned a list with 1, which is no Platform"),
        ([platform(Base), platform(Base)], "platforms declared a name twice"),
        ([platform(Base, max_length=0)], "the platform 'demo' has an impossible max_length"),
        ([platform(Base, rate=-1)], "the platform 'demo' has an impossible rate"),
        ([platform(Base, edit=True)], "edit is missing, and the platform declares edit=True"),
        ([platform(Base, drafts=["dm"])], "drafts need the hook draft, and edit=True"),
        ([platform(Adapter)], "Adapter: connect is missing; send is missing"),
        ([Platform("a.b", Base, Settings, max_length=1)], "declared the name 'a.b'"),
        ([Platform("demo", NEEDED, Settings, max_length=1)], "not a subclass of Adapter"),
        ([Platform("demo", Base, NEEDED, max_length=1)], "not a subclass of Settings"),
    ],
)
def test_impossible_platforms(value: object, expected: str) -> None:
    assert expected in declared(value)


@pytest.mark.parametrize(
    ("length", "expected"),
    [
        (
            lambda text: 1 / 0,
            "its length of 0 characters raised ZeroDivisionError: division by zero",
        ),
        (lambda text: sys.exit(3), "its length of 0 characters raised SystemExit: 3"),
        (lambda text: float("nan"), "its length of 0 characters is nan"),
        (lambda text: len(text) - 1, "its length of 0 characters is -1"),
        (lambda text: len(text.encode("ascii")), "raised UnicodeEncodeError"),
        (lambda text: 0, "its length of one letter is 0"),
        (lambda text: 10**9, "its length of one letter is 1000000000"),
        (lambda text, form: len(text), "raised TypeError"),
    ],
)
def test_a_platform_that_cannot_measure_texts(length: Any, expected: str) -> None:
    found = declared([platform(Base, length=length)])
    assert "the platform 'demo' cannot measure texts: " in found
    assert expected in found


def test_a_hook_missing_from_an_adapter_that_is_there_without_its_mark() -> None:
    class Unmarked(Adapter[Settings]):
        @hookimpl
        async def connect(self) -> None: ...

        async def send(self) -> None: ...

    assert declared([platform(Unmarked)]).endswith(
        "Unmarked: send is missing (there is one without @hookimpl)"
    )


def test_an_override_that_lost_its_mark() -> None:
    class Override(Base):
        async def send(self, message: Outbound) -> Receipt:
            raise NotImplementedError

    assert "send is not marked @hookimpl and hides the one of Base" in declared(
        [platform(Override)]
    )


def test_a_hook_that_a_subclass_takes_back() -> None:
    class Editing(Base):
        @hookimpl
        async def edit(self) -> None: ...

    class Plain(Editing):
        edit: Any = None

    assert "edit is missing" in declared([platform(Plain, edit=True)])
    assert "Editing" not in declared([platform(Plain, edit=True)])


def test_faults_of_an_adapter_are_told_together() -> None:
    class Faulty(Adapter[Settings]):
        @hookimpl
        async def connect(self, is_reconect: bool) -> None: ...

        @hookimpl
        async def send(self, **message: object) -> None: ...

        @hookimpl
        async def edti(self) -> None: ...

        @hookimpl
        async def on_turn_end(self) -> None: ...

    adapter = Faulty(Settings(), NEEDED)
    with pytest.raises(PluginError) as caught:
        AdapterCalls(adapter, where="demo/default@default")
    text = str(caught.value)
    assert text.startswith("demo/default@default: connect takes 'is_reconect'")
    assert "(did you mean is_reconnect?)" in text
    assert "send takes **message" in text
    assert "(did you mean edit?)" in text
    assert "on_turn_end is a function of the module" in text
    assert "missing" not in text


def test_a_foreign_base_may_have_methods_of_our_names(caplog: pytest.LogCaptureFixture) -> None:
    class Client:
        def edit(self) -> None: ...

    class Mixed(Base, Client): ...

    with caplog.at_level(logging.WARNING):
        AdapterCalls(Mixed(Settings(), NEEDED))
    assert not caplog.records


def test_user_ids_are_normalised_without_an_instance() -> None:
    class Upper(Base):
        @hookimpl
        @staticmethod
        def normalize_user_id(user_id: str) -> str:
            if not user_id:
                raise ValueError("empty")
            return None if user_id == "none" else user_id.upper()  # type: ignore[return-value]

    class Exiting(Base):
        @staticmethod
        @hookimpl
        def normalize_user_id() -> str:
            raise SystemExit

    class Method(Base):
        @hookimpl
        def normalize_user_id(self, user_id: str) -> str:
            return user_id

    normalize = normalizer(platform(Upper))
    assert normalize("a") == "A"
    with pytest.raises(ValueError, match="empty"):
        normalize("")
    with pytest.raises(PluginError, match="returned None"):
        normalize("none")
    with pytest.raises(PluginError):
        normalizer(platform(Exiting))("a")
    assert normalizer(platform(Base))("a") == "a"
    assert "is not a @staticmethod" in declared([platform(Method)])
