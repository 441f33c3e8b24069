-- Times are milliseconds since 1970 in UTC: to_timestamp(created_at / 1000.0).
-- Ids are in byte order (COLLATE "C"), because pages of lists have that order.
-- storage/postgres/README.md says which statement uses which table and index.

-- A chat and its counter. The big tables have the number key in place of the id, which has up to
-- 128 bytes. So their rows and indexes are smaller. Every batch of messages updates the row in
-- place (HOT): no index has a column that changes, and half of each page stays free.
CREATE TABLE chats (
    key             bigint  GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id              text    COLLATE "C" NOT NULL UNIQUE,
    type            text    NOT NULL,
    history         text    NOT NULL,
    name            text    NOT NULL,
    direct_key      text    COLLATE "C" UNIQUE,  -- tidemark.DirectKey of a direct chat, else NULL
    created_at      bigint  NOT NULL,
    activity_at     bigint  NOT NULL,            -- time of the last message, or of the creation
    head            bigint  NOT NULL DEFAULT 0,  -- the messages of the chat are exactly 1..head
    floor           bigint  NOT NULL DEFAULT 1,  -- the first message that is kept
    uncounted       bigint  NOT NULL DEFAULT 0,  -- the messages that do not count as unread
    last_uncounted  bigint  NOT NULL DEFAULT 0,  -- the sequence of the last of them
    sent_1          bigint  NOT NULL DEFAULT 0,  -- senders.sent of the member with seat 1
    last_sent_1     bigint  NOT NULL DEFAULT 0,
    sent_2          bigint  NOT NULL DEFAULT 0,  -- and of that with seat 2
    last_sent_2     bigint  NOT NULL DEFAULT 0,
    member_count    integer NOT NULL,
    members_version bigint  NOT NULL DEFAULT 1,
    large           boolean NOT NULL,
    creation        text    NOT NULL,            -- identifies the request that created the chat
    version         bigint  NOT NULL DEFAULT 1   -- grows when the name or the metadata change
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

-- The metadata of the chats that have some. They are not in the row of the chat, which every
-- message changes.
CREATE TABLE chat_metadata (
    chat     bigint PRIMARY KEY,
    metadata text   NOT NULL
);

-- The members. The row of a former member stays, because it says what they may see. The roles are
-- owner, admin, member and reader.
CREATE TABLE members (
    chat      bigint  NOT NULL,
    user_id   text    COLLATE "C" NOT NULL,
    chat_id   text    COLLATE "C" NOT NULL,  -- the id of the chat, for the order of a user's chats
    current   boolean NOT NULL,
    role      text    NOT NULL,
    joined_at bigint  NOT NULL,
    seat      bigint  NOT NULL DEFAULT 0,    -- 1 or 2 in a direct chat, else 0
    intervals text    NOT NULL,              -- "1-5,9-": the sequences that the user may see
    metadata  text,                          -- of the application; NULL for a former member
    PRIMARY KEY (chat, user_id)
);

CREATE INDEX members_of_user ON members (user_id, chat_id) INCLUDE (chat) WHERE current;

-- How many messages that count as unread a member of a group has sent. Every batch of messages
-- updates the rows of its senders in place. The two members of a direct chat have seats instead:
-- their numbers are in the row of the chat, which every batch updates anyway.
CREATE TABLE senders (
    chat      bigint NOT NULL,
    user_id   text   COLLATE "C" NOT NULL,
    sent      bigint NOT NULL,
    last_sent bigint NOT NULL,  -- the sequence of the last of them
    PRIMARY KEY (chat, user_id)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

CREATE TABLE messages (
    chat              bigint NOT NULL,
    sequence          bigint NOT NULL,
    created_at        bigint NOT NULL,
    members_version   bigint NOT NULL,  -- the chat's, in the step that stored the message
    sender_id         text   COLLATE "C" NOT NULL,
    client_message_id text   COLLATE "C" NOT NULL,
    message_id        text   NOT NULL,
    content_type      text   NOT NULL,
    kind              text,             -- NULL for a message of a user
    life              bigint,           -- lives.number when it was stored; NULL is 1
    mentions          text,             -- "alice bob", or "*" for all
    attachments       text,             -- a JSON array of objects, byte for byte as it was sent
    metadata          text,             -- a JSON object, byte for byte as it was sent
    content           text   NOT NULL,
    PRIMARY KEY (chat, sequence)
) WITH (autovacuum_vacuum_insert_scale_factor = 0.05);

-- The idempotency keys, kept as long as their messages. The client's id comes first, so clients
-- with time-ordered ids (UUIDv7) write to the end of the index.
CREATE UNIQUE INDEX messages_by_key ON messages (client_message_id, sender_id, chat);

CREATE TABLE delivery_state (
    chat                bigint NOT NULL,
    user_id             text   COLLATE "C" NOT NULL,
    last_acked_sequence bigint NOT NULL,
    last_read_sequence  bigint NOT NULL,
    acked_at            bigint NOT NULL,            -- when the watermark last moved; 0: never
    read_at             bigint NOT NULL,
    unread_from         bigint NOT NULL DEFAULT 0,  -- from here on marked as unread; 0: no mark
    sent_before         bigint NOT NULL DEFAULT 0,  -- what of senders.sent is not after the mark
    PRIMARY KEY (chat, user_id)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

-- The messages that do not count as unread, with their ordinals: the first of a chat has 1. So the
-- number of those up to a sequence is the ordinal of the last row.
CREATE TABLE uncounted (
    chat     bigint NOT NULL,
    sequence bigint NOT NULL,
    ordinal  bigint NOT NULL,
    PRIMARY KEY (chat, sequence)
);

-- Who is named by which message. The user "*" stands for all members.
CREATE TABLE mentions (
    chat      bigint NOT NULL,
    user_id   text   COLLATE "C" NOT NULL,
    sequence  bigint NOT NULL,
    sender_id text   COLLATE "C" NOT NULL,
    PRIMARY KEY (chat, user_id, sequence)
);

CREATE TABLE pending_deliveries (
    user_id               text   COLLATE "C" NOT NULL,
    chat_id               text   COLLATE "C" NOT NULL,
    first_undelivered_seq bigint NOT NULL,  -- inclusive; 0 in a large chat
    PRIMARY KEY (user_id, chat_id)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

-- The lives of the data, of which the last is the present one. A restored backup begins a new one.
CREATE TABLE lives (
    number   bigint PRIMARY KEY,
    id       text   COLLATE "C" NOT NULL,
    identity text   NOT NULL  -- what the database was when the life began
);

-- The oldest program that may work with this schema, named by the version that it needs. The one
-- row is changed by migrations that take something away from older programs.
CREATE TABLE schema_compatible (
    version bigint NOT NULL
);

INSERT INTO schema_compatible (version) VALUES (1);
