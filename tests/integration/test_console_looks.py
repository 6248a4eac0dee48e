"""The page at `/`, in a real Chromium, with the colours of who looks on."""
from page_standins import Told, document_of


def test_colours_that_the_system_forces(service, browse):
    """As Windows' contrast themes do: states, bars and charts are seen on whatever is behind them."""
    jobs = [document_of(1), document_of(2, "failed"), document_of(3, "running", progress=0.5)]
    with Told(service) as told:
        said = browse("forced", told, jobs=jobs)
    for theme in ("light", "dark"):
        found, empty = said["found"][theme], said["empty"][theme]
        assert found["forced"] and found["unseen"] == [], theme
        assert found["tasks"] > empty["tasks"] + 500 and found["rates"] > empty["rates"] + 100, (theme, said)
    assert said["timeline"] == []
    assert said["unusable"] == ["muted", "problem"], "a class of which there is no device alarms nobody, a device that does not work does"
