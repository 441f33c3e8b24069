-- Which users have blocked which others, and who is banned from which group.
CREATE TABLE blocks (
    user_id    text COLLATE "C" NOT NULL,  -- who blocks
    blocked_id text COLLATE "C" NOT NULL,
    blocked_at bigint NOT NULL,            -- milliseconds since 1970
    PRIMARY KEY (user_id, blocked_id)
);

-- Who has blocked a user. It is read when the user is erased. The expression keeps other
-- statements from choosing this index.
CREATE INDEX blocks_of ON blocks ((blocked_id || ''));

CREATE TABLE bans (
    chat      bigint NOT NULL,             -- chats.key
    user_id   text COLLATE "C" NOT NULL,
    banned_at bigint NOT NULL,             -- milliseconds since 1970
    PRIMARY KEY (chat, user_id)
);
