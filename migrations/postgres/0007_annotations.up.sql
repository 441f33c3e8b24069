-- The reactions and pins that stand (storage.Annotations). A message of the kind react or pin adds
-- a row, and its redaction removes it. The row is not needed to read the message. Other messages
-- do not touch these tables.

CREATE TABLE reactions (
    chat       bigint NOT NULL,
    target     bigint NOT NULL,  -- the sequence of the message with the reaction
    user_id    text   COLLATE "C" NOT NULL,
    emoji      text   COLLATE "C" NOT NULL,
    sequence   bigint NOT NULL,  -- that of the reaction
    created_at bigint NOT NULL,
    PRIMARY KEY (chat, target, user_id, emoji)
);

CREATE TABLE pins (
    chat       bigint NOT NULL,
    target     bigint NOT NULL,  -- the sequence of the message that is pinned
    user_id    text   COLLATE "C" NOT NULL,
    sequence   bigint NOT NULL,  -- that of the pin
    created_at bigint NOT NULL,
    PRIMARY KEY (chat, target)
);
