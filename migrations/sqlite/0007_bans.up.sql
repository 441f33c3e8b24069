-- Which users have blocked which others. user_id blocks blocked_id.
CREATE TABLE blocks (
    user_id    TEXT NOT NULL,
    blocked_id TEXT NOT NULL,
    blocked_at INTEGER NOT NULL,  -- milliseconds since 1970
    PRIMARY KEY (user_id, blocked_id)
) STRICT, WITHOUT ROWID;

-- Who is banned from which group. chat is chats.key.
CREATE TABLE bans (
    chat      INTEGER NOT NULL,
    user_id   TEXT NOT NULL,
    banned_at INTEGER NOT NULL,   -- milliseconds since 1970
    PRIMARY KEY (chat, user_id)
) STRICT, WITHOUT ROWID;
