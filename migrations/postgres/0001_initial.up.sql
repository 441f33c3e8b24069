-- Times are milliseconds since 1970 in UTC: to_timestamp(created_at / 1000.0). Ids are in byte order, which is the order of every page:
-- hence COLLATE "C". storage/postgres/README.md says which statement uses what.

-- A chat and its counter. The number stands for the id in the big tables, whose rows and indexes it makes smaller: an id has up to 128
-- bytes. The row is updated with every batch of messages, always in place (HOT): no index has a column that moves, and half of each page is left free.
CREATE TABLE chats (
    key             bigint  GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id              text    COLLATE "C" NOT NULL UNIQUE,
    type            text    NOT NULL,
    history         text    NOT NULL,
    name            text    NOT NULL,
    direct_key      text    COLLATE "C" UNIQUE,  -- of a direct chat: the pair of its members; NULL otherwise
    created_at      bigint  NOT NULL,
    activity_at     bigint  NOT NULL,            -- of the last message, or of the creation
    head            bigint  NOT NULL DEFAULT 0,  -- the messages of the chat are exactly 1..head
    member_count    integer NOT NULL,
    members_version bigint  NOT NULL DEFAULT 1,
    large           boolean NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

-- Who may see what. The row of a former member stays, because it says what he may see.
CREATE TABLE members (
    chat      bigint  NOT NULL,
    user_id   text    COLLATE "C" NOT NULL,
    chat_id   text    COLLATE "C" NOT NULL,  -- the id of the chat, for the order of a user's chats
    current   boolean NOT NULL,
    role      text    NOT NULL,
    joined_at bigint  NOT NULL,
    intervals text    NOT NULL,              -- "1-5,9-": the sequences that he may see, both ends included
    PRIMARY KEY (chat, user_id)
);

CREATE INDEX members_of_user ON members (user_id, chat_id) INCLUDE (chat) WHERE current;

CREATE TABLE messages (
    chat              bigint NOT NULL,
    sequence          bigint NOT NULL,
    created_at        bigint NOT NULL,
    members_version   bigint NOT NULL,  -- of the chat, in the step that stored the message
    sender_id         text   COLLATE "C" NOT NULL,
    client_message_id text   COLLATE "C" NOT NULL,
    message_id        text   NOT NULL,
    content_type      text   NOT NULL,
    attachment        text,             -- a JSON object, byte for byte as it was sent
    content           text   NOT NULL,
    PRIMARY KEY (chat, sequence)
) WITH (autovacuum_vacuum_insert_scale_factor = 0.05);

-- The idempotency keys, kept as long as their messages. Led by the client's id: clients that number their sends with
-- time-ordered ids (UUIDv7) write to the end of the index.
CREATE UNIQUE INDEX messages_by_key ON messages (client_message_id, sender_id, chat);

CREATE TABLE delivery_state (
    chat                bigint NOT NULL,
    user_id             text   COLLATE "C" NOT NULL,
    last_acked_sequence bigint NOT NULL,
    last_read_sequence  bigint NOT NULL,
    updated_at          bigint NOT NULL,
    PRIMARY KEY (chat, user_id)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

CREATE TABLE pending_deliveries (
    user_id               text   COLLATE "C" NOT NULL,
    chat_id               text   COLLATE "C" NOT NULL,
    first_undelivered_seq bigint NOT NULL,  -- inclusive; 0 in a chat that is too large for a row to be written at each message
    PRIMARY KEY (user_id, chat_id)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);
