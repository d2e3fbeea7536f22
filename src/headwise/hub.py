"""The hub: whether it can be reached at all, asked once and quickly.

A file that is not to be had is otherwise asked for again and again, which takes half a minute.
"""

SECONDS = 5.0
"""Until a hub that says nothing counts as one that cannot be reached."""


def hub_answers() -> bool:
    """Whether the hub says anything.

    Without it, or with HF_HUB_OFFLINE set, what was downloaded before can still be read.
    """
    from huggingface_hub import constants, get_session

    try:
        get_session().head(constants.ENDPOINT, timeout=SECONDS)
    except Exception:  # no network, no such host, no certificate, offline: nothing can be had
        return False
    return True
