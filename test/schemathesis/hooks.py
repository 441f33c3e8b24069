"""A check of schemathesis: what fits openapi.yaml succeeds, or is refused for a known reason.

The tool imports this module (TestSchemathesis_finds_nothing).
"""

import schemathesis

# Why a request that fits the schema may be refused, by the problem's code and field. None is a
# problem that names no field.
REASONS = {
    ("INVALID", "platform"): "is not served by this server",
    ("INVALID", "address"): "holds a space, or is no endpoint that is allowed",
    ("INVALID", "app"): "is needed by another platform, or holds a space",
    ("INVALID", "keys"): "are needed by the platform",
    ("INVALID", "p256dh"): "is no point on the curve",
    ("INVALID", "auth"): "has another length",
    ("INVALID", "environment"): "is for another platform",
    ("INVALID", "quiet_hours"): "names a zone that does not exist",
    ("INVALID", "mutes"): "names a chat twice",
    ("INVALID", "display_name"): "has more bytes than characters",
    ("INVALID", "cursor"): "only the server makes cursors",
    ("INVALID", "after_sequence"): "excludes before_sequence",
    ("INVALID", None): "two fields exclude each other",
    ("INVALID", "chats"): "names a chat twice",
    ("INVALID", "chat_id"): "begins like the ids that the server makes",
    ("INVALID", "send_by"): "is too far ahead",
    ("INVALID", "relation"): "belongs to the kinds edit and redact, which need it",
    ("INVALID", "relation.sequence"): "is missing, and so are sequences",
    ("INVALID", "relation.sequences"): "belong to the kind redact, ascend, and exclude sequence",
    ("INVALID", "relation.emoji"): "belongs to the kind react, which needs it",
    ("INVALID", "content_type"): "belongs to kinds with content",
    ("INVALID", "mentions"): "belong to kinds with content",
    ("INVALID", "attachment_sources"): "belong to kinds with content",
    ("INVALID", "user_id"): "is one's own",
    ("INVALID_SEQUENCE", "for_sequence"): "is above the head",
    ("INVALID_SEQUENCE", "from_sequence"): "is above the head",
    ("INVALID_SEQUENCE", "last_acked_sequence"): "is above the head",
    ("INVALID_SEQUENCE", "last_read_sequence"): "is above the head",
    ("INVALID_SEQUENCE", "seen_sequence"): "is above the head",
    ("SESSION_GONE", None): "there is no such session",
    ("REPLACED", None): "the session was ended, and its client stays away",
    ("CONFLICT", None): "the key is used by something else",
    ("CONFLICT", "chat_id"): "the id is used by another chat",
    ("CONFLICT", "relation.sequence"): "is redacted, is itself a relation, or was edited too often",
    ("CONFLICT", "relation.sequences"): "name a message that is itself a relation",
    ("CONFLICT", "relation.emoji"): "stands already",
    ("CONFLICT", "client_chat_id"): "the id is used by another request",
    ("EXPIRED", "send_by"): "is over",
    ("UNAVAILABLE", "send_by"): "is over since less than a minute",
}
# Texts have limits in bytes, and no U+0000. A schema counts characters.
TEXTS = ("content", "name", "metadata", "attachments")
STATES = (401, 403, 404, 429)


@schemathesis.check
def fits_or_says_why(ctx, response, case):
    """Fails for an unexplained refusal of a request that fits the schema."""
    mode = case.meta and case.meta.generation.mode
    if not mode or not mode.is_positive or response.status_code < 400:
        return
    if response.status_code in STATES:
        return
    problem = response.json()
    code, param = problem.get("code"), problem.get("param")
    field = param and param.split("[")[0]  # without the index of an element
    if (code, field) in REASONS:
        return
    if code in ("INVALID", "TOO_LARGE") and field in TEXTS:
        return
    raise AssertionError(
        f"{response.status_code} {code} of {param}: {problem.get('detail')}; "
        "the schema accepts this request, and hooks.py has no reason to refuse it"
    )
