"""Hugging Face hub: whether it answers, and why a download failed."""

SECONDS = 5.0
"""How long to wait for the hub; without this check transformers waits half a minute per file."""


def hub_answers() -> bool:
    """Whether the hub answers; False if HF_HUB_OFFLINE is set."""
    from huggingface_hub import constants, get_session

    try:
        get_session().head(constants.ENDPOINT, timeout=SECONDS)
    except Exception:  # no network, unknown host, bad certificate, offline
        return False
    return True


def why_download_failed(error: BaseException | None) -> str:
    """Reason for a hub error, which may be `error` or one of its causes; "" if there is none."""
    from huggingface_hub import constants, errors

    while error is not None:
        if isinstance(error, errors.LocalEntryNotFoundError | errors.OfflineModeIsEnabled):
            reason = f"{constants.ENDPOINT} does not answer"
            if constants.is_offline_mode():
                reason = "HF_HUB_OFFLINE is set"
            return f"{reason}, its files were not downloaded before, and no directory has this name"
        if isinstance(error, errors.GatedRepoError):
            return f"access to it is restricted: request access at {constants.ENDPOINT} and log in"
        if isinstance(error, errors.RepositoryNotFoundError):
            return f"{constants.ENDPOINT} has no such model, or you have no access to it"
        if isinstance(error, errors.HFValidationError):
            return "it is neither a directory nor a valid hub id"
        error = error.__cause__ or error.__context__
    return ""
