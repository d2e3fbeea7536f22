"""The hub: whether it can be reached, checked once and quickly.

Without this check, transformers asks for every missing file again and again, for half a minute.
"""

SECONDS = 5.0
"""Wait for the hub this long before treating it as unreachable."""


def hub_answers() -> bool:
    """Whether the hub answers; False if HF_HUB_OFFLINE is set. Downloaded files need no hub."""
    from huggingface_hub import constants, get_session

    try:
        get_session().head(constants.ENDPOINT, timeout=SECONDS)
    except Exception:  # no network, unknown host, bad certificate, offline
        return False
    return True
