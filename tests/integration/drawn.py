"""What the property tests draw: the same every time, or other problems with BLASD_TEST_SEED=n."""
import os

import hypothesis

SEED = os.environ.get("BLASD_TEST_SEED")


def bounded(examples):
    """Decorates a test that is given what hypothesis draws."""
    settings = hypothesis.settings(max_examples=examples, deadline=None, derandomize=True, database=None,
                                   suppress_health_check=list(hypothesis.HealthCheck))
    return (lambda test: settings(hypothesis.seed(int(SEED))(test))) if SEED else settings
