"""Settings: defaults < retroute.toml < environment < flags; what is wrong is refused with a sentence that helps."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.auth import Token
from ingest.errors import ConfigError
from optimizer import config
from optimizer.gate import Limits

HASH = f"sha256:{'5e' * 32}"
FULL = """
[collector]
host = "0.0.0.0"
port = 4319
grpc_port = 0
cors = ["https://app.example"]
tls_cert = "cert.pem"
tls_key = "key.pem"
max_wire_mib = 8
max_body_mib = 16
max_in_flight_mib = 32
max_backlog_mib = 64

[collector.tokens]
app = "sha256:5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e"

[settle]
quiet_s = 5

[privacy]
content = false
redact = ["email", "key"]
deny = ["app.note", "http.*", "db."]

[privacy.patterns]
employee = 'EMP-\\d{6}'

[[prices]]
model = "qwen2.5-7b"
input = 0.3
output = 0.3
from = 2026-01-31

[[prices]]
model = "gemma"
provider = "x"
input = 0
output = 1.5
cache_read = 0.1
cache_write = 0.2

[services.assistant]
incumbent = "big"
quality = "quality"
judge = "helpfulness"
orchestrate = true
step_quality = "step_reward"
step_quality_of = "best"
reward = "puppeteer"
episode = "session"
value_usd = 0.02

[services.assistant.limits]
quality_margin = 0.02
confidence = 0.9
latency_s = 1

[services.assistant.segments.premium]
attribute = "customer.plan"
values = ["gold", "platinum"]
quality_margin = 0.05

[services.assistant.points.first]
actions = ["big", "small"]
"""


def load(tmp_path: Path, text: str = "", environment: dict[str, str] | None = None, **flags: object) -> config.Settings:
    (tmp_path / "retroute.toml").write_text(text, encoding="utf-8")
    return config.load(tmp_path, {key.replace("__", "."): value for key, value in flags.items()}, environment or {})


def test_home_without_file_has_the_defaults(tmp_path):
    settings = config.load(tmp_path, {}, {})
    assert settings == config.Settings()
    assert (settings.collector.host, settings.collector.port, settings.settle.quiet_s) == ("127.0.0.1", 4318, 2.0)
    assert settings.source("collector.port") == "default"


def test_every_documented_key_is_read(tmp_path):
    settings = load(tmp_path, FULL)
    assert settings.collector == config.CollectorSettings(
        "0.0.0.0", 4319, 0, ("https://app.example",), (Token("app", HASH),), "cert.pem", "key.pem", 8, 16, 32, 64
    )
    assert settings.settle.quiet_s == 5.0
    assert (settings.privacy.content, settings.privacy.redact) == (False, ("email", "key"))
    assert settings.privacy.deny == ("app.note", "http.*", "db.")
    assert dict(settings.privacy.patterns) == {"employee": r"EMP-\d{6}"}
    first, second = settings.prices
    assert (first.model, first.input, first.valid_from, first.cache_read) == ("qwen2.5-7b", 0.3, "2026-01-31", None)
    assert (second.provider, second.cache_read, second.cache_write, second.valid_from) == ("x", 0.1, 0.2, None)
    assistant = settings.service("assistant")
    assert (assistant.incumbent, assistant.quality, assistant.value_usd) == ("big", "quality", 0.02)
    assert assistant.judge == "helpfulness"
    steps = (assistant.orchestrate, assistant.step_quality, assistant.step_quality_of)
    assert steps == (True, "step_reward", "best")
    assert (assistant.reward, assistant.episode) == ("puppeteer", "session")
    assert assistant.limits == Limits(quality_margin=0.02, confidence=0.9, latency_s=1.0)
    assert assistant.segments["premium"] == config.SegmentSettings("customer.plan", ("gold", "platinum"), 0.05)
    assert assistant.points["first"].actions == ("big", "small")
    assert settings.source("services.assistant.limits.latency_s") == str(tmp_path / "retroute.toml")


def test_service_that_is_not_written_has_the_defaults(tmp_path):
    assert load(tmp_path, FULL).service("other") == config.ServiceSettings()


def test_flag_beats_environment_beats_file_beats_default(tmp_path):
    text, environment = "[collector]\nport = 1", {"RETROUTE_COLLECTOR_PORT": "2"}
    three = load(tmp_path, text, environment, collector__port=3)
    two = load(tmp_path, text, environment, collector__port=None)
    one = load(tmp_path, text)
    assert [settings.collector.port for settings in (three, two, one)] == [3, 2, 1]
    sources = [settings.source("collector.port") for settings in (three, two, one)]
    assert sources == ["flag", "environment RETROUTE_COLLECTOR_PORT", str(tmp_path / "retroute.toml")]


def test_environment_is_parsed_as_the_settings_type(tmp_path):
    environment = {
        "RETROUTE_COLLECTOR_TOKENS": f"a = {HASH}, b={HASH}",
        "RETROUTE_SETTLE_QUIET_S": "0.5",
        "RETROUTE_COLLECTOR_HOST": "::1",
    }
    settings = load(tmp_path, "", environment)
    assert settings.collector.tokens == (Token("a", HASH), Token("b", HASH))
    assert (settings.settle.quiet_s, settings.collector.host) == (0.5, "::1")


def test_home_variable_and_kubernetes_own_variables_are_no_settings(tmp_path):
    environment = {
        "RETROUTE_HOME": "/data",
        "RETROUTE_SERVICE_HOST": "10.0.0.1",
        "RETROUTE_COLLECTOR_PORT": "tcp://10.0.0.1:4318",
        "RETROUTE_COLLECTOR_PORT_4318_TCP_ADDR": "10.0.0.1",
        "RETROUTE_COLLECTOR_SERVICE_PORT_OTLP": "4318",
    }
    assert load(tmp_path, "", environment) == config.Settings()


@pytest.mark.parametrize(
    ("text", "unknown", "meant"),
    [
        ("[colector]", "colector", "collector"),
        ("[collector]\nprot = 1", "prot", "port"),
        ("[setle]\nquiet_s = 1", "setle", "settle"),
        ("[settle]\nquiet = 1", "quiet", "quiet_s"),
        ('[[prices]]\nmodel = "m"\ninputs = 1\noutput = 1', "inputs", "input"),
        ('[services.a]\nincumbant = "m"', "incumbant", "incumbent"),
        ("[services.a.limit]", "limit", "limits"),
        ("[services.a.limits]\nquality_margins = 0.1", "quality_margins", "quality_margin"),
        ("[services.a.points.p]\naction = []", "action", "actions"),
        ("[services.a.segments.p]\nvalue = []", "value", "values"),
    ],
)
def test_unknown_key_is_refused_with_the_nearest_name(tmp_path, text, unknown, meant):
    with pytest.raises(ConfigError) as refused:
        load(tmp_path, text)
    assert str(tmp_path / "retroute.toml") in refused.value.message
    assert f"'{unknown}'" in refused.value.message
    assert f"'{meant}'" in refused.value.hint


def test_key_like_none_lists_the_known_ones(tmp_path):
    with pytest.raises(ConfigError) as refused:
        load(tmp_path, "[settle]\nxyzzy = 1")
    assert refused.value.hint == "Known here: quiet_s."


def test_misspelt_variable_is_refused_with_the_nearest_name(tmp_path):
    with pytest.raises(ConfigError) as refused:
        load(tmp_path, "", {"RETROUTE_COLECTOR_PORT": "1"})
    assert "RETROUTE_COLECTOR_PORT" in refused.value.message
    assert "RETROUTE_COLLECTOR_PORT" in refused.value.hint


def test_segment_without_values_is_refused(tmp_path):
    with pytest.raises(ConfigError) as refused:
        load(tmp_path, '[services.a.segments.p]\nattribute = "plan"')
    assert refused.value.message.endswith("services.a.segments.p lacks values")


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ('[collector]\nport = "4318"', "collector.port"),
        ("[collector]\nport = true", "collector.port"),
        ("[collector]\nport = 65536", "collector.port"),
        ('[collector]\ncors = "x"', "collector.cors"),
        ("collector = 1", "collector"),
        ("[collector]\nmax_wire_mib = 0", "collector.max_wire_mib"),
        ("[collector]\nmax_body_mib = 1025", "collector.max_body_mib"),
        ("[collector]\nmax_backlog_mib = 1.5", "collector.max_backlog_mib"),
        ("[collector]\ntls_cert = 1", "collector.tls_cert"),
        (f'[collector.tokens]\n"two words" = "{HASH}"', "collector.tokens"),
        ("[settle]\nquiet_s = nan", "settle.quiet_s"),
        ("[settle]\nquiet_s = 0", "settle.quiet_s"),
        ("[prices]\nmodel = 1", "prices"),
        ('[[prices]]\nmodel = "m"\ninput = -1\noutput = 1', "prices[1].input"),
        ('[[prices]]\nmodel = "m"\ninput = 1\noutput = 1\nfrom = "soon"', "prices[1].from"),
        ("[services]\na = 1", "services.a"),
        ("[services.a]\nvalue_usd = 0", "services.a.value_usd"),
        ("[services.a.limits]\nconfidence = 1", "services.a.limits.confidence"),
        ("[services.a.limits]\nquality_margin = 5", "services.a.limits.quality_margin"),
        ("[services.a.points.p]\nactions = [1]", "services.a.points.p.actions"),
        ("[services.a.segments.p]\nattribute = 'a\"b'\nvalues = ['x']", "services.a.segments.p.attribute"),
    ],
)
def test_wrong_type_or_range_is_refused_with_file_and_key(tmp_path, text, key):
    with pytest.raises(ConfigError) as refused:
        load(tmp_path, text)
    assert f"{tmp_path / 'retroute.toml'}: {key} must be" in refused.value.message


def test_price_without_output_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"prices\[1\] lacks output"):
        load(tmp_path, '[[prices]]\nmodel = "m"\ninput = 1')


def test_text_that_is_not_toml_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="not valid TOML"):
        load(tmp_path, "[collector")


def test_setting_that_cannot_be_honoured_is_refused_rather_than_ignored(tmp_path):
    with pytest.raises(ConfigError, match="cannot honour"):
        load(tmp_path, '[lake]\ndata = "s3://x"')


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('redact = ["mail"]', "a list of email, phone, card, iban, key"),
        ('redact = "email"', "a list of email"),
        ('deny = ["*"]', "beginnings of keys"),
        ('deny = ["a*b"]', "beginnings of keys"),
        ('patterns = {employee = "("}', "a regular expression under 'employee'"),
        ('patterns = {employee = "x*"}', "matches no empty text"),
        ('patterns = {Employee = "x"}', "a name of small letters"),
        ("patterns = {employee = 3}", "a table of names and regular expressions"),
    ],
)
def test_privacy_that_cannot_be_had_is_refused(tmp_path, line, expected):
    with pytest.raises(ConfigError, match=re.escape(expected)):
        load(tmp_path, f"[privacy]\n{line}")


def test_privacy_can_be_set_in_the_environment(tmp_path):
    environment = {
        "RETROUTE_PRIVACY_CONTENT": "false",
        "RETROUTE_PRIVACY_REDACT": "email, key",
        "RETROUTE_PRIVACY_PATTERNS": '{"employee": "EMP"}',
    }
    found = load(tmp_path, environment=environment).privacy
    assert (found.content, found.redact, dict(found.patterns)) == (False, ("email", "key"), {"employee": "EMP"})
    with pytest.raises(ConfigError, match=r"RETROUTE_PRIVACY_PATTERNS: privacy\.patterns must be a JSON object"):
        load(tmp_path, environment={"RETROUTE_PRIVACY_PATTERNS": "employee=EMP"})


@pytest.mark.parametrize(
    "line",
    [
        'tokens = "s3cret"',
        'tokens = ["s3cret"]',
        'tokens = {app = "s3cret"}',
        'tokens = {app = ["s3cret"]}',
        'tokens = {app = "sha256:s3cret"}',
    ],
)
def test_a_token_that_is_not_hashed_is_refused_and_shown_nowhere(tmp_path, line):
    with pytest.raises(ConfigError, match="retroute token NAME") as refused:
        load(tmp_path, f"[collector]\n{line}")
    assert "s3cret" not in refused.value.message + refused.value.hint


def test_a_plain_token_in_the_environment_is_refused_and_not_shown(tmp_path):
    for plain in ("s3cret", "app=s3cret"):
        with pytest.raises(ConfigError, match="retroute token NAME") as refused:
            load(tmp_path, "", {"RETROUTE_COLLECTOR_TOKENS": plain})
        assert "s3cret" not in refused.value.message


def test_hashes_appear_in_no_repr(tmp_path):
    assert HASH not in repr(load(tmp_path, FULL))


def test_wrong_flag_names_the_flag(tmp_path):
    with pytest.raises(ConfigError, match=r"flag: collector\.port must be"):
        load(tmp_path, "", None, collector__port=70000)


@given(
    st.sampled_from(sorted((s, k) for s in config.SECTIONS for k in config.SECTIONS[s])),
    st.text("abcdefgh_", min_size=1),
)
def test_no_misspelt_key_is_ever_accepted(place, suffix):
    section, key = place
    with pytest.raises(ConfigError):
        config.load(Path("/nonexistent"), {f"{section}.{key}{suffix}x": 1}, {})
