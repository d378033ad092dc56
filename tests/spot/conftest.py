from tests.apps.conftest import clinics  # noqa: F401
