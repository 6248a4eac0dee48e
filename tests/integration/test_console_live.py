"""The page at `/`, in a real Chromium: what it says while things come and go."""


def test_it_says_that_redis_is_away(make_service, browse):
    """A stream that is open is no sign of life of what its figures come from; once they come again, it says so by itself."""
    service = make_service("--limit", "silence_s=600")
    said = browse("redis_away", service, redis=service.part("redis"))
    assert not said["at_first"] and not said["at_last"]
    assert said["link"] == "not up to date" and "by themselves" in said["old"]
    assert said["axe"] == []
