-- The reactions and pins that stand (storage.Annotations). A message of the kind react or pin adds
-- a row, and its redaction removes it. The row is not needed to read the message. Other messages
-- do not touch these tables.

CREATE TABLE reactions (
    chat       INTEGER NOT NULL,
    target     INTEGER NOT NULL,  -- the sequence of the message with the reaction
    user_id    TEXT    NOT NULL,
    emoji      TEXT    NOT NULL,
    sequence   INTEGER NOT NULL,  -- that of the reaction
    created_at INTEGER NOT NULL,
    PRIMARY KEY (chat, target, user_id, emoji)
) STRICT, WITHOUT ROWID;

CREATE TABLE pins (
    chat       INTEGER NOT NULL,
    target     INTEGER NOT NULL,  -- the sequence of the message that is pinned
    user_id    TEXT    NOT NULL,
    sequence   INTEGER NOT NULL,  -- that of the pin
    created_at INTEGER NOT NULL,
    PRIMARY KEY (chat, target)
) STRICT, WITHOUT ROWID;
