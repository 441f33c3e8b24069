-- Which users have blocked which others. user_id blocks blocked_id.
CREATE TABLE blocks (
    user_id    TEXT NOT NULL,
    blocked_id TEXT NOT NULL,
    blocked_at INTEGER NOT NULL,  -- milliseconds since 1970
    PRIMARY KEY (user_id, blocked_id)
) STRICT, WITHOUT ROWID;

-- Who has blocked a user. It is read when the user is erased.
CREATE INDEX blocks_of ON blocks (blocked_id);

-- Who is banned from which group. chat is chats.key.
CREATE TABLE bans (
    chat      INTEGER NOT NULL,
    user_id   TEXT NOT NULL,
    banned_at INTEGER NOT NULL,   -- milliseconds since 1970
    PRIMARY KEY (chat, user_id)
) STRICT, WITHOUT ROWID;
