-- Times are milliseconds since 1970 in UTC. Booleans are 0 or 1.
-- storage/sqlite/README.md says which statement uses which table and index.

-- A chat and its counter. The big tables have the integer key in place of the id, which has up to
-- 128 bytes. So their rows are smaller.
CREATE TABLE chats (
    key             INTEGER PRIMARY KEY,
    id              TEXT    NOT NULL UNIQUE,
    type            TEXT    NOT NULL,
    history         TEXT    NOT NULL,
    name            TEXT    NOT NULL,
    direct_key      TEXT,                        -- tidemark.DirectKey of a direct chat, else NULL
    created_at      INTEGER NOT NULL,
    activity_at     INTEGER NOT NULL,            -- time of the last message, or of the creation
    head            INTEGER NOT NULL DEFAULT 0,  -- the messages of the chat are exactly 1..head
    floor           INTEGER NOT NULL DEFAULT 1,  -- the first message that is kept
    uncounted       INTEGER NOT NULL DEFAULT 0,  -- the messages that do not count as unread
    last_uncounted  INTEGER NOT NULL DEFAULT 0,  -- the sequence of the last of them
    seats           TEXT    NOT NULL DEFAULT '[]',  -- the numbers of the members with a seat
    member_count    INTEGER NOT NULL,
    members_version INTEGER NOT NULL DEFAULT 1,
    large           INTEGER NOT NULL,
    creation        TEXT    NOT NULL,            -- identifies the request that created the chat
    version         INTEGER NOT NULL DEFAULT 1   -- grows when the name or the metadata change
) STRICT;

CREATE UNIQUE INDEX chats_by_pair ON chats (direct_key) WHERE direct_key IS NOT NULL;

-- The metadata of the chats that have some. They are not in the row of the chat, which every
-- message changes.
CREATE TABLE chat_metadata (
    chat     INTEGER PRIMARY KEY,
    metadata TEXT    NOT NULL
) STRICT;

-- The members. The row of a former member stays, because it says what they may see and have sent.
-- The roles are owner, admin, member and reader.
-- The first senders of a chat have the seats 1, 2 and so on, and keep them. Their numbers are in
-- the row of the chat, which every message updates anyway: [sent, last_sent, sent, last_sent, …].
-- The two members of a direct chat have their seats from the beginning.
CREATE TABLE members (
    chat      INTEGER NOT NULL,
    user_id   TEXT    NOT NULL,
    chat_id   TEXT    NOT NULL,  -- the id of the chat, for the order of a user's chats
    current   INTEGER NOT NULL,
    role      TEXT    NOT NULL,
    joined_at INTEGER NOT NULL,
    intervals TEXT    NOT NULL,  -- "1-5,9-": the sequences that the user may see
    seat      INTEGER NOT NULL DEFAULT 0,  -- 0: none; sent and last_sent are in this row
    sent      INTEGER NOT NULL DEFAULT 0,  -- the messages of the user that count as unread
    last_sent INTEGER NOT NULL DEFAULT 0,  -- the sequence of the last of them
    metadata  TEXT,                        -- of the application; NULL for a former member
    PRIMARY KEY (chat, user_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX members_of_user ON members (user_id, chat_id) WHERE current = 1;

-- The small columns come first, so that reading them does not read the overflow pages of a long
-- content. kind_mentions is NULL for a message of a user that names nobody and was never changed.
-- Of a message that was changed it ends with tidemark.Revision.Text: "message alice {…}". Of an
-- edit or a redaction it has the sequence of the message that is changed: "edit 5", "redact 5".
-- The table has 13 columns. With more, SQLite finds the place of a row by a slower comparison
-- (sqlite3VdbeFindCompare).
CREATE TABLE messages (
    chat              INTEGER NOT NULL,
    sequence          INTEGER NOT NULL,
    sender_id         TEXT    NOT NULL,
    client_message_id TEXT    NOT NULL,
    message_id        TEXT    NOT NULL,
    created_at        INTEGER NOT NULL,
    members_version   INTEGER NOT NULL,  -- the chat's, in the step that stored the message
    content_type      TEXT    NOT NULL,
    life              INTEGER,           -- lives.number when it was stored; NULL is 1
    kind_mentions     TEXT,              -- "message alice bob", "message *", "system"; or NULL
    attachments       TEXT,
    metadata          TEXT,
    content           TEXT    NOT NULL,
    PRIMARY KEY (chat, sequence)
) STRICT, WITHOUT ROWID;

-- The idempotency keys, kept as long as their messages. The client's id comes first, so clients
-- with time-ordered ids (UUIDv7) write to the end of the index.
CREATE UNIQUE INDEX messages_by_key ON messages (client_message_id, sender_id, chat);

CREATE TABLE delivery_state (
    chat                INTEGER NOT NULL,
    user_id             TEXT    NOT NULL,
    last_acked_sequence INTEGER NOT NULL,
    last_read_sequence  INTEGER NOT NULL,
    acked_at            INTEGER NOT NULL,            -- when the watermark last moved; 0: never
    read_at             INTEGER NOT NULL,
    unread_from         INTEGER NOT NULL DEFAULT 0,  -- from here on marked as unread; 0: no mark
    sent_before         INTEGER NOT NULL DEFAULT 0,  -- what of members.sent is not after the mark
    PRIMARY KEY (chat, user_id)
) STRICT, WITHOUT ROWID;

-- The messages that do not count as unread, with their ordinals: the first of a chat has 1. So the
-- number of those up to a sequence is the ordinal of the last row.
CREATE TABLE uncounted (
    chat     INTEGER NOT NULL,
    sequence INTEGER NOT NULL,
    ordinal  INTEGER NOT NULL,
    PRIMARY KEY (chat, sequence)
) STRICT, WITHOUT ROWID;

-- Who is named by which message. The user "*" stands for all members.
CREATE TABLE mentions (
    chat      INTEGER NOT NULL,
    user_id   TEXT    NOT NULL,
    sequence  INTEGER NOT NULL,
    sender_id TEXT    NOT NULL,
    PRIMARY KEY (chat, user_id, sequence)
) STRICT, WITHOUT ROWID;

CREATE TABLE pending_deliveries (
    user_id               TEXT    NOT NULL,
    chat_id               TEXT    NOT NULL,
    first_undelivered_seq INTEGER NOT NULL,  -- inclusive; 0 in a large chat
    PRIMARY KEY (user_id, chat_id)
) STRICT, WITHOUT ROWID;

-- The lives of the data, of which the last is the present one. A restored backup begins a new one.
CREATE TABLE lives (
    number INTEGER PRIMARY KEY,
    id     TEXT NOT NULL UNIQUE
) STRICT;

-- The oldest program that may work with this schema, named by the version that it needs. The one
-- row is changed by migrations that take something away from older programs.
CREATE TABLE schema_compatible (
    version INTEGER NOT NULL
) STRICT;

INSERT INTO schema_compatible (version) VALUES (1);
