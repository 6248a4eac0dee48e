"""Signed tokens of an identity provider (JWT) in place of keys: what is taken, and what attackers make of them."""
import base64
import json
import os
import time
import zlib

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from service import Service
from test_auth import PRODUCT, bearer, keys, start_refused

ISSUER, AUDIENCE = "https://idp.example", "blasd"
SIGNERS = {"RS256": rsa.generate_private_key(65537, 2048), "ES256": ec.generate_private_key(ec.SECP256R1()),
           "EdDSA": ed25519.Ed25519PrivateKey.generate()}


def public(key):
    """As a member of a set of keys."""
    pem = key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    numbers = key.public_key().public_numbers() if not isinstance(key, ed25519.Ed25519PrivateKey) else None

    def text(value, length):
        raw = value if isinstance(value, bytes) else value.to_bytes(length, "big")
        return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()
    if isinstance(key, rsa.RSAPrivateKey):
        return {"kty": "RSA", "n": text(numbers.n, 256), "e": text(numbers.e, 3)}, pem
    if isinstance(key, ec.EllipticCurvePrivateKey):
        return {"kty": "EC", "crv": "P-256", "x": text(numbers.x, 32), "y": text(numbers.y, 32)}, pem
    raw = key.public_key().public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
    return {"kty": "OKP", "crv": "Ed25519", "x": text(raw, 32)}, pem


def key_set(signers):
    return json.dumps({"keys": [{**public(key)[0], "kid": kid, "use": "sig"} for kid, key in signers.items()]})


def claims(**more):
    now = int(time.time())
    made = {"iss": ISSUER, "aud": AUDIENCE, "sub": "alice", "exp": now + 600, "iat": now, **more}
    return {name: value for name, value in made.items() if value is not None}


def token(algorithm="EdDSA", key=None, headers=None, **more):
    return jwt.encode(claims(**more), key or SIGNERS[algorithm], algorithm, {"kid": algorithm, **(headers or {})})


@pytest.fixture(scope="module")
def trusting(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trusting")
    (folder / "signers.json").write_text(key_set(SIGNERS))
    key = keys("add", "local", file=folder / "keys.json").strip()
    service = Service(folder, "--keys", str(folder / "keys.json"), "--jwt-keys", str(folder / "signers.json"),
                      "--jwt-issuer", ISSUER, "--jwt-audience", AUDIENCE).start()
    service.signers, service.key = folder / "signers.json", key
    assert ask(service, key) == 200
    yield service
    service.stop()


def ask(service, shown, path="/ops"):
    return service.request("GET", path, headers=bearer(shown)).status


@pytest.mark.parametrize("algorithm", SIGNERS)
def test_each_algorithm(trusting, algorithm):
    shown = token(algorithm)
    for _ in range(2):
        done = trusting.request("POST", "/jobs?wait=20", PRODUCT, bearer(shown))
        assert done.status == 200 and done.json()["state"] == "succeeded"
    assert ask(trusting, trusting.key) == 200  # keys go on


def test_claims_are_those_of_a_key(trusting):
    assert ask(trusting, token(role="metrics"), "/metrics") == 200
    assert ask(trusting, token(role="metrics"), "/jobs") == 403
    assert ask(trusting, token(), "/metrics") == 403
    reader = bearer(token(blasd={"role": "read", "tenant": "lab"}, role="whatever", tenant=7))
    assert trusting.request("POST", "/jobs", PRODUCT, reader).status == 403
    assert trusting.request("GET", "/jobs", headers=reader).status == 200
    narrow = bearer(token(ops=["solve"], limits={"priority": "low", "jobs": 5}))
    assert trusting.request("POST", "/jobs", PRODUCT, narrow).json()["field"] == "op"
    slow = bearer(token(sub="slow", limits={"jobs_per_s": 1}))
    assert "RateLimit" in trusting.request("POST", "/jobs?wait=20", PRODUCT, slow).headers


def wrong_tokens():
    now = int(time.time())
    good = token()
    head, body, signature = good.split(".")

    def text(document):
        return base64.urlsafe_b64encode(json.dumps(document).encode()).rstrip(b"=").decode()
    mine = ed25519.Ed25519PrivateKey.generate()
    yield "unsigned", f"{text({'alg': 'none'})}.{text(claims())}."
    yield "unsigned, capitals", f"{text({'alg': 'nOnE', 'kid': 'EdDSA'})}.{body}."
    yield "no signature", f"{head}.{body}."
    yield "another's signature", f"{head}.{body}.{token(sub='bob').split('.')[2]}"
    yield "changed claims", f"{head}.{text(claims(role='admin'))}.{signature}"
    yield "changed head", f"{text({'alg': 'RS256', 'kid': 'RS256'})}.{body}.{signature}"
    yield "another key", token(key=mine)
    yield "another key without a kid", jwt.encode(claims(), mine, "EdDSA")
    yield "its own key", token(key=mine, headers={"jwk": public(mine)[0]})
    yield "a URL of its own keys", token(key=mine, headers={"jku": "http://127.0.0.1:1/keys"})
    yield "an HMAC with the public key", _hmac("RS256", public(SIGNERS["RS256"])[1])
    yield "an HMAC without a key", _hmac("RS256", b"")
    yield "another hash", token("RS256", headers={"alg": "RS512"})
    yield "RS512", jwt.encode(claims(), SIGNERS["RS256"], "RS512", {"kid": "RS256"})
    yield "PS256", jwt.encode(claims(), SIGNERS["RS256"], "PS256", {"kid": "RS256"})
    yield "critical", token(headers={"crit": ["b64"], "b64": True})
    yield "expired", token(exp=now - 120)
    yield "no end", token(exp=None)
    yield "an end that is no number", token(exp=None, **{"exp ": "x"})
    yield "not yet", token(nbf=now + 300)
    yield "another issuer", token(iss="https://else.example")
    yield "no issuer", token(iss=None)
    yield "another audience", token(aud="others")
    yield "no audience", token(aud=None)
    yield "audiences", token(aud=["others", "more"])
    yield "nobody", token(sub=None)
    yield "empty", token(sub="")
    yield "a bad role", token(role="root")
    yield "a bad tenant", token(tenant="a:b")
    yield "no tenant", token(sub="auth0|x")
    yield "a bad limit", token(limits={"jobs": -1})
    yield "an unknown limit", token(limits={"jbos": 1})
    yield "a claim of its own that is a text", token(blasd=json.dumps({"role": "read"}))
    yield "encrypted", good + ".x.y"
    yield "long", "a" * 9000 + ".b.c"
    yield "dots", ".."
    yield "spaces", f"{head}.{body}.{signature} x"
    yield "compressed", compressed(json.dumps(claims()).encode())


def compressed(body):
    """Rightly signed; a library may unpack it before it looks at who has."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    return jwt.api_jws.encode(packer.compress(body) + packer.flush(), SIGNERS["EdDSA"], "EdDSA",
                              {"kid": "EdDSA", "zip": "DEF"})


def _hmac(kid, secret):
    import hashlib
    import hmac

    def text(raw):
        return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()
    signed = text(json.dumps({"alg": "HS256", "kid": kid}).encode()) + "." + text(json.dumps(claims()).encode())
    return signed + "." + text(hmac.new(secret, signed.encode(), hashlib.sha256).digest())


def test_what_attackers_make_of_them(tmp_path):
    (tmp_path / "signers.json").write_text(key_set(SIGNERS))
    service = Service(tmp_path, "--jwt-keys", str(tmp_path / "signers.json"), "--jwt-issuer", ISSUER,
                      "--jwt-audience", AUDIENCE).start()
    try:
        for what, shown in wrong_tokens():
            answer = service.request("GET", "/ops", headers=bearer(shown))
            if answer.status == 429:  # it has to wait for those before: a new service has forgotten them
                service.stop()
                service.start()
                answer = service.request("GET", "/ops", headers=bearer(shown))
            assert answer.status == 401, (what, answer.body)
        assert service.request("GET", "/ops", headers=bearer(token())).status in (200, 429)
        assert token().split(".")[0] not in service.log_text()
    finally:
        service.stop()


def test_more_audiences_and_a_tenant(trusting):
    assert ask(trusting, token(aud=["others", AUDIENCE])) == 200
    assert ask(trusting, token(sub="auth0|1234567890", tenant="lab")) == 200


def test_signers_change_while_it_runs(trusting):
    fresh = ed25519.Ed25519PrivateKey.generate()
    old, new = token("ES256"), jwt.encode(claims(), fresh, "EdDSA", {"kid": "fresh"})
    assert ask(trusting, old) == 200
    text = trusting.signers.read_text()
    try:
        changed = trusting.signers.with_suffix(".new")
        changed.write_text(key_set({"fresh": fresh}))
        os.replace(changed, trusting.signers)
        end = time.monotonic() + 30
        while ask(trusting, old) == 200 and time.monotonic() < end:
            time.sleep(0.1)
        assert ask(trusting, old) in (401, 429)
        while ask(trusting, new) != 200 and time.monotonic() < end:
            time.sleep(0.1)
        assert ask(trusting, new) == 200
    finally:
        trusting.signers.write_text(text)


@pytest.mark.parametrize("algorithm", SIGNERS)
def test_one_public_key_as_pem(tmp_path, algorithm):
    (tmp_path / "key.pem").write_bytes(public(SIGNERS[algorithm])[1])
    service = Service(tmp_path, "--jwt-keys", str(tmp_path / "key.pem"), "--jwt-issuer", ISSUER,
                      "--jwt-audience", AUDIENCE).start()
    try:
        assert ask(service, token(algorithm)) == 200
        assert ask(service, jwt.encode(claims(), SIGNERS[algorithm], algorithm)) == 200
    finally:
        service.stop()


def test_options_that_do_not_fit(tmp_path):
    data = ("--listen", "127.0.0.1:0", "--data", str(tmp_path / "data"))
    (tmp_path / "bad").write_text("{}")
    rest = ("--jwt-issuer", ISSUER, "--jwt-audience", AUDIENCE)
    assert "--jwt-audience" in start_refused(*data, "--jwt-keys", "x")
    assert "none.json" in start_refused(*data, "--jwt-keys", str(tmp_path / "none.json"), *rest)
    assert "PEM" in start_refused(*data, "--jwt-keys", str(tmp_path / "bad"), *rest)
    assert "save the key set to a file" in start_refused(*data, "--jwt-keys", "https://idp.example/keys", *rest)
