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

CREATE TABLE schema_migrations (
    version bigint  PRIMARY KEY,
    dirty   boolean NOT NULL
);
DELETE FROM schema_compatible;
INSERT INTO chat_metadata (chat, metadata) OVERRIDING SYSTEM VALUE VALUES ('1', '{"topic": "fish",  "n":1.0}');
INSERT INTO chat_metadata (chat, metadata) OVERRIDING SYSTEM VALUE VALUES ('2', '{"colour": "blue"}');
INSERT INTO chats (key, id, type, history, name, direct_key, created_at, activity_at, head, floor, uncounted, last_uncounted, sent_1, last_sent_1, sent_2, last_sent_2, member_count, members_version, large, creation, version) OVERRIDING SYSTEM VALUE VALUES ('1', 'direct', 'direct', 'full', '', 'anna|ben', '1769853600007', '1769853639007', '5', '1', '0', '0', '2', '3', '3', '5', '2', '1', 'false', 'anna made it', '1');
INSERT INTO chats (key, id, type, history, name, direct_key, created_at, activity_at, head, floor, uncounted, last_uncounted, sent_1, last_sent_1, sent_2, last_sent_2, member_count, members_version, large, creation, version) OVERRIDING SYSTEM VALUE VALUES ('2', 'group', 'group', 'full', 'Fish & Chips', NULL, '1769853600007', '1769853641007', '8', '1', '1', '4', '0', '0', '0', '0', '4', '7', 'false', 'anna made this, too', '2');
INSERT INTO chats (key, id, type, history, name, direct_key, created_at, activity_at, head, floor, uncounted, last_uncounted, sent_1, last_sent_1, sent_2, last_sent_2, member_count, members_version, large, creation, version) OVERRIDING SYSTEM VALUE VALUES ('3', 'joined', 'group', 'since_join', 'since the join', NULL, '1769853600007', '1769853615007', '6', '1', '0', '0', '0', '0', '0', '0', '3', '4', 'false', '', '1');
INSERT INTO chats (key, id, type, history, name, direct_key, created_at, activity_at, head, floor, uncounted, last_uncounted, sent_1, last_sent_1, sent_2, last_sent_2, member_count, members_version, large, creation, version) OVERRIDING SYSTEM VALUE VALUES ('4', 'crowd', 'group', 'full', 'many senders', NULL, '1769853600007', '1769853633007', '18', '1', '0', '0', '0', '0', '0', '0', '20', '1', 'false', '', '1');
INSERT INTO chats (key, id, type, history, name, direct_key, created_at, activity_at, head, floor, uncounted, last_uncounted, sent_1, last_sent_1, sent_2, last_sent_2, member_count, members_version, large, creation, version) OVERRIDING SYSTEM VALUE VALUES ('5', 'big', 'group', 'full', 'large', NULL, '1769853600007', '1769853636007', '3', '1', '0', '0', '0', '0', '0', '0', '502', '1', 'true', '', '1');
INSERT INTO chats (key, id, type, history, name, direct_key, created_at, activity_at, head, floor, uncounted, last_uncounted, sent_1, last_sent_1, sent_2, last_sent_2, member_count, members_version, large, creation, version) OVERRIDING SYSTEM VALUE VALUES ('6', 'empty', 'group', 'full', '', NULL, '1769853600007', '1769853600007', '0', '1', '0', '0', '0', '0', '0', '0', '1', '1', 'false', '', '1');
INSERT INTO chats (key, id, type, history, name, direct_key, created_at, activity_at, head, floor, uncounted, last_uncounted, sent_1, last_sent_1, sent_2, last_sent_2, member_count, members_version, large, creation, version) OVERRIDING SYSTEM VALUE VALUES ('7', 'left', 'group', 'full', '', NULL, '1769853600007', '1769853637007', '1', '1', '0', '0', '0', '0', '0', '0', '2', '2', 'false', '', '1');
INSERT INTO delivery_state (chat, user_id, last_acked_sequence, last_read_sequence, acked_at, read_at, unread_from, sent_before) OVERRIDING SYSTEM VALUE VALUES ('1', 'anna', '5', '4', '1769853660007', '1769853660007', '0', '2');
INSERT INTO delivery_state (chat, user_id, last_acked_sequence, last_read_sequence, acked_at, read_at, unread_from, sent_before) OVERRIDING SYSTEM VALUE VALUES ('1', 'ben', '3', '3', '1769853650007', '1769853657007', '0', '1');
INSERT INTO delivery_state (chat, user_id, last_acked_sequence, last_read_sequence, acked_at, read_at, unread_from, sent_before) OVERRIDING SYSTEM VALUE VALUES ('2', 'ben', '6', '6', '1769853653007', '1769853653007', '3', '0');
INSERT INTO delivery_state (chat, user_id, last_acked_sequence, last_read_sequence, acked_at, read_at, unread_from, sent_before) OVERRIDING SYSTEM VALUE VALUES ('2', 'cleo', '4', '2', '1769853654007', '1769853654007', '2', '0');
INSERT INTO delivery_state (chat, user_id, last_acked_sequence, last_read_sequence, acked_at, read_at, unread_from, sent_before) OVERRIDING SYSTEM VALUE VALUES ('2', 'emil', '1', '0', '1769853655007', '0', '0', '0');
INSERT INTO delivery_state (chat, user_id, last_acked_sequence, last_read_sequence, acked_at, read_at, unread_from, sent_before) OVERRIDING SYSTEM VALUE VALUES ('3', 'cleo', '3', '3', '1769853601007', '1769853601007', '0', '0');
INSERT INTO delivery_state (chat, user_id, last_acked_sequence, last_read_sequence, acked_at, read_at, unread_from, sent_before) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00001', '3', '2', '1769853656007', '1769853656007', '0', '0');
INSERT INTO lives (number, id, identity) OVERRIDING SYSTEM VALUE VALUES ('1', 'aaaaaaaaaaaaaaaa', 'another');
INSERT INTO lives (number, id, identity) OVERRIDING SYSTEM VALUE VALUES ('2', 'bbbbbbbbbbbbbbbb', 'another');
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('1', 'anna', 'direct', 'true', 'owner', '1769853600007', '1', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('1', 'ben', 'direct', 'true', 'member', '1769853600007', '2', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('2', 'anna', 'group', 'true', 'owner', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('2', 'ben', 'group', 'true', 'admin', '1769853600007', '0', '1-', '{"nick": "Benny"}');
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('2', 'cleo', 'group', 'true', 'reader', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('2', 'dora', 'group', 'true', 'member', '1769853601007', '0', '1-2,5-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('2', 'emil', 'group', 'false', 'member', '1769853600007', '0', '1-4', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('3', 'anna', 'joined', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('3', 'ben', 'joined', 'true', 'owner', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('3', 'cleo', 'joined', 'true', 'member', '1769853601007', '0', '4-4,6-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('4', 'u00000', 'crowd', 'true', 'owner', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('4', 'u00001', 'crowd', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('4', 'u00002', 'crowd', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('4', 'u00003', 'crowd', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('4', 'u00004', 'crowd', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('4', 'u00005', 'crowd', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('4', 'u00006', 'crowd', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('4', 'u00007', 'crowd', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('4', 'u00008', 'crowd', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('4', 'u00009', 'crowd', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('4', 'u00010', 'crowd', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('4', 'u00011', 'crowd', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('4', 'u00012', 'crowd', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('4', 'u00013', 'crowd', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('4', 'u00014', 'crowd', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('4', 'u00015', 'crowd', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('4', 'u00016', 'crowd', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('4', 'u00017', 'crowd', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('4', 'u00018', 'crowd', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('4', 'u00019', 'crowd', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'anna', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00000', 'big', 'true', 'owner', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00001', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00002', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00003', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00004', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00005', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00006', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00007', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00008', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00009', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00010', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00011', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00012', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00013', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00014', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00015', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00016', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00017', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00018', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00019', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00020', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00021', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00022', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00023', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00024', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00025', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00026', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00027', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00028', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00029', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00030', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00031', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00032', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00033', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00034', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00035', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00036', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00037', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00038', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00039', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00040', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00041', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00042', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00043', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00044', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00045', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00046', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00047', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00048', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00049', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00050', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00051', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00052', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00053', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00054', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00055', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00056', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00057', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00058', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00059', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00060', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00061', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00062', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00063', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00064', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00065', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00066', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00067', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00068', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00069', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00070', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00071', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00072', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00073', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00074', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00075', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00076', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00077', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00078', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00079', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00080', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00081', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00082', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00083', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00084', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00085', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00086', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00087', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00088', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00089', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00090', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00091', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00092', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00093', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00094', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00095', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00096', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00097', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00098', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00099', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00100', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00101', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00102', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00103', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00104', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00105', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00106', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00107', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00108', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00109', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00110', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00111', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00112', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00113', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00114', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00115', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00116', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00117', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00118', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00119', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00120', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00121', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00122', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00123', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00124', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00125', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00126', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00127', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00128', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00129', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00130', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00131', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00132', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00133', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00134', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00135', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00136', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00137', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00138', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00139', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00140', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00141', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00142', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00143', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00144', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00145', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00146', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00147', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00148', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00149', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00150', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00151', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00152', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00153', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00154', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00155', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00156', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00157', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00158', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00159', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00160', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00161', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00162', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00163', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00164', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00165', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00166', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00167', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00168', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00169', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00170', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00171', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00172', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00173', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00174', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00175', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00176', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00177', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00178', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00179', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00180', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00181', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00182', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00183', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00184', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00185', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00186', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00187', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00188', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00189', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00190', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00191', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00192', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00193', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00194', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00195', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00196', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00197', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00198', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00199', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00200', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00201', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00202', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00203', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00204', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00205', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00206', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00207', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00208', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00209', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00210', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00211', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00212', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00213', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00214', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00215', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00216', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00217', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00218', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00219', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00220', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00221', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00222', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00223', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00224', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00225', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00226', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00227', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00228', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00229', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00230', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00231', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00232', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00233', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00234', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00235', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00236', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00237', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00238', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00239', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00240', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00241', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00242', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00243', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00244', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00245', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00246', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00247', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00248', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00249', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00250', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00251', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00252', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00253', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00254', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00255', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00256', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00257', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00258', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00259', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00260', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00261', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00262', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00263', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00264', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00265', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00266', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00267', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00268', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00269', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00270', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00271', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00272', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00273', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00274', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00275', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00276', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00277', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00278', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00279', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00280', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00281', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00282', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00283', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00284', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00285', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00286', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00287', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00288', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00289', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00290', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00291', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00292', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00293', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00294', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00295', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00296', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00297', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00298', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00299', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00300', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00301', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00302', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00303', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00304', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00305', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00306', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00307', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00308', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00309', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00310', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00311', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00312', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00313', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00314', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00315', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00316', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00317', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00318', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00319', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00320', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00321', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00322', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00323', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00324', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00325', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00326', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00327', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00328', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00329', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00330', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00331', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00332', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00333', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00334', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00335', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00336', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00337', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00338', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00339', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00340', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00341', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00342', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00343', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00344', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00345', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00346', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00347', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00348', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00349', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00350', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00351', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00352', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00353', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00354', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00355', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00356', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00357', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00358', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00359', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00360', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00361', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00362', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00363', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00364', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00365', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00366', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00367', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00368', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00369', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00370', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00371', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00372', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00373', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00374', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00375', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00376', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00377', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00378', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00379', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00380', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00381', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00382', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00383', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00384', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00385', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00386', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00387', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00388', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00389', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00390', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00391', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00392', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00393', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00394', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00395', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00396', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00397', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00398', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00399', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00400', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00401', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00402', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00403', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00404', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00405', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00406', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00407', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00408', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00409', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00410', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00411', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00412', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00413', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00414', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00415', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00416', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00417', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00418', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00419', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00420', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00421', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00422', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00423', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00424', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00425', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00426', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00427', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00428', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00429', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00430', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00431', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00432', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00433', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00434', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00435', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00436', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00437', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00438', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00439', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00440', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00441', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00442', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00443', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00444', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00445', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00446', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00447', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00448', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00449', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00450', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00451', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00452', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00453', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00454', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00455', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00456', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00457', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00458', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00459', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00460', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00461', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00462', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00463', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00464', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00465', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00466', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00467', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00468', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00469', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00470', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00471', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00472', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00473', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00474', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00475', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00476', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00477', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00478', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00479', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00480', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00481', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00482', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00483', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00484', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00485', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00486', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00487', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00488', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00489', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00490', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00491', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00492', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00493', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00494', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00495', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00496', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00497', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00498', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00499', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00500', 'big', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('6', 'ben', 'empty', 'true', 'owner', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('7', 'anna', 'left', 'true', 'owner', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('7', 'cleo', 'left', 'true', 'member', '1769853600007', '0', '1-', NULL);
INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals, metadata) OVERRIDING SYSTEM VALUE VALUES ('7', 'dora', 'left', 'false', 'owner', '1769853600007', '0', '1-1', NULL);
INSERT INTO mentions (chat, user_id, sequence, sender_id) OVERRIDING SYSTEM VALUE VALUES ('2', '*', '5', 'dora');
INSERT INTO mentions (chat, user_id, sequence, sender_id) OVERRIDING SYSTEM VALUE VALUES ('2', 'cleo', '3', 'ben');
INSERT INTO mentions (chat, user_id, sequence, sender_id) OVERRIDING SYSTEM VALUE VALUES ('2', 'dora', '3', 'ben');
INSERT INTO messages (chat, sequence, created_at, members_version, sender_id, client_message_id, message_id, content_type, kind, life, mentions, attachments, metadata, content) OVERRIDING SYSTEM VALUE VALUES ('1', '1', '1769853601007', '1', 'anna', 'key-1', 'message-1', 'text/markdown', NULL, NULL, NULL, '[{"name":"fish.png","size":12}, {"x":"y"}]', '{"a":[1, 2],"b":null}', E'It''s "new":
	\\ ☃ 🌊 %s $1 ;--');
INSERT INTO messages (chat, sequence, created_at, members_version, sender_id, client_message_id, message_id, content_type, kind, life, mentions, attachments, metadata, content) OVERRIDING SYSTEM VALUE VALUES ('1', '2', '1769853602007', '1', 'ben', 'key-2', 'message-2', 'text/plain', NULL, NULL, NULL, '[{"name":"alone"}]', NULL, '');
INSERT INTO messages (chat, sequence, created_at, members_version, sender_id, client_message_id, message_id, content_type, kind, life, mentions, attachments, metadata, content) OVERRIDING SYSTEM VALUE VALUES ('1', '3', '1769853603007', '1', 'anna', 'key-3', 'message-3', 'text/plain', NULL, NULL, NULL, NULL, NULL, 'long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long ');
INSERT INTO messages (chat, sequence, created_at, members_version, sender_id, client_message_id, message_id, content_type, kind, life, mentions, attachments, metadata, content) OVERRIDING SYSTEM VALUE VALUES ('1', '4', '1769853638007', '1', 'ben', 'key-38', 'message-38', 'text/plain', NULL, '2', NULL, NULL, NULL, 'hello');
INSERT INTO messages (chat, sequence, created_at, members_version, sender_id, client_message_id, message_id, content_type, kind, life, mentions, attachments, metadata, content) OVERRIDING SYSTEM VALUE VALUES ('1', '5', '1769853639007', '1', 'ben', 'key-39', 'message-39', 'text/plain', NULL, '2', NULL, NULL, NULL, 'hello');
INSERT INTO messages (chat, sequence, created_at, members_version, sender_id, client_message_id, message_id, content_type, kind, life, mentions, attachments, metadata, content) OVERRIDING SYSTEM VALUE VALUES ('2', '1', '1769853604007', '4', 'anna', 'key-4', 'message-4', 'text/plain', NULL, NULL, NULL, NULL, NULL, 'hello');
INSERT INTO messages (chat, sequence, created_at, members_version, sender_id, client_message_id, message_id, content_type, kind, life, mentions, attachments, metadata, content) OVERRIDING SYSTEM VALUE VALUES ('2', '2', '1769853605007', '4', 'anna', 'key-5', 'message-5', 'text/plain', NULL, NULL, NULL, NULL, NULL, 'hello');
INSERT INTO messages (chat, sequence, created_at, members_version, sender_id, client_message_id, message_id, content_type, kind, life, mentions, attachments, metadata, content) OVERRIDING SYSTEM VALUE VALUES ('2', '3', '1769853606007', '5', 'ben', 'key-6', 'message-6', 'text/plain', NULL, NULL, 'cleo dora', NULL, NULL, 'hello cleo and dora');
INSERT INTO messages (chat, sequence, created_at, members_version, sender_id, client_message_id, message_id, content_type, kind, life, mentions, attachments, metadata, content) OVERRIDING SYSTEM VALUE VALUES ('2', '4', '1769853607007', '5', 'anna', 'key-7', 'message-7', 'text/plain', 'system', NULL, NULL, NULL, NULL, 'emil has left');
INSERT INTO messages (chat, sequence, created_at, members_version, sender_id, client_message_id, message_id, content_type, kind, life, mentions, attachments, metadata, content) OVERRIDING SYSTEM VALUE VALUES ('2', '5', '1769853608007', '7', 'dora', 'key-8', 'message-8', 'text/plain', NULL, NULL, '*', NULL, NULL, 'I am back');
INSERT INTO messages (chat, sequence, created_at, members_version, sender_id, client_message_id, message_id, content_type, kind, life, mentions, attachments, metadata, content) OVERRIDING SYSTEM VALUE VALUES ('2', '6', '1769853609007', '7', 'anna', 'key-9', 'message-9', 'text/plain', NULL, NULL, NULL, NULL, NULL, 'hello');
INSERT INTO messages (chat, sequence, created_at, members_version, sender_id, client_message_id, message_id, content_type, kind, life, mentions, attachments, metadata, content) OVERRIDING SYSTEM VALUE VALUES ('2', '7', '1769853640007', '7', 'ben', 'key-40', 'message-40', 'text/plain', NULL, '2', NULL, NULL, NULL, 'hello');
INSERT INTO messages (chat, sequence, created_at, members_version, sender_id, client_message_id, message_id, content_type, kind, life, mentions, attachments, metadata, content) OVERRIDING SYSTEM VALUE VALUES ('2', '8', '1769853641007', '7', 'ben', 'key-41', 'message-41', 'text/plain', NULL, '2', NULL, NULL, NULL, 'hello');
INSERT INTO messages (chat, sequence, created_at, members_version, sender_id, client_message_id, message_id, content_type, kind, life, mentions, attachments, metadata, content) OVERRIDING SYSTEM VALUE VALUES ('3', '1', '1769853610007', '1', 'ben', 'key-10', 'message-10', 'text/plain', NULL, NULL, NULL, NULL, NULL, 'hello');
INSERT INTO messages (chat, sequence, created_at, members_version, sender_id, client_message_id, message_id, content_type, kind, life, mentions, attachments, metadata, content) OVERRIDING SYSTEM VALUE VALUES ('3', '2', '1769853611007', '1', 'ben', 'key-11', 'message-11', 'text/plain', NULL, NULL, NULL, NULL, NULL, 'hello');
INSERT INTO messages (chat, sequence, created_at, members_version, sender_id, client_message_id, message_id, content_type, kind, life, mentions, attachments, metadata, content) OVERRIDING SYSTEM VALUE VALUES ('3', '3', '1769853612007', '1', 'ben', 'key-12', 'message-12', 'text/plain', NULL, NULL, NULL, NULL, NULL, 'hello');
INSERT INTO messages (chat, sequence, created_at, members_version, sender_id, client_message_id, message_id, content_type, kind, life, mentions, attachments, metadata, content) OVERRIDING SYSTEM VALUE VALUES ('3', '4', '1769853613007', '2', 'cleo', 'key-13', 'message-13', 'text/plain', NULL, NULL, NULL, NULL, NULL, 'hello');
INSERT INTO messages (chat, sequence, created_at, members_version, sender_id, client_message_id, message_id, content_type, kind, life, mentions, attachments, metadata, content) OVERRIDING SYSTEM VALUE VALUES ('3', '5', '1769853614007', '3', 'anna', 'key-14', 'message-14', 'text/plain', NULL, NULL, NULL, NULL, NULL, 'hello');
INSERT INTO messages (chat, sequence, created_at, members_version, sender_id, client_message_id, message_id, content_type, kind, life, mentions, attachments, metadata, content) OVERRIDING SYSTEM VALUE VALUES ('3', '6', '1769853615007', '4', 'ben', 'key-15', 'message-15', 'text/plain', NULL, NULL, NULL, NULL, NULL, 'hello');
INSERT INTO messages (chat, sequence, created_at, members_version, sender_id, client_message_id, message_id, content_type, kind, life, mentions, attachments, metadata, content) OVERRIDING SYSTEM VALUE VALUES ('4', '1', '1769853616007', '1', 'u00000', 'key-16', 'message-16', 'text/plain', NULL, NULL, NULL, NULL, NULL, 'hello');
INSERT INTO messages (chat, sequence, created_at, members_version, sender_id, client_message_id, message_id, content_type, kind, life, mentions, attachments, metadata, content) OVERRIDING SYSTEM VALUE VALUES ('4', '10', '1769853625007', '1', 'u00009', 'key-25', 'message-25', 'text/plain', NULL, NULL, NULL, NULL, NULL, 'hello');
INSERT INTO messages (chat, sequence, created_at, members_version, sender_id, client_message_id, message_id, content_type, kind, life, mentions, attachments, metadata, content) OVERRIDING SYSTEM VALUE VALUES ('4', '11', '1769853626007', '1', 'u00010', 'key-26', 'message-26', 'text/plain', NULL, NULL, NULL, NULL, NULL, 'hello');
INSERT INTO messages (chat, sequence, created_at, members_version, sender_id, client_message_id, message_id, content_type, kind, life, mentions, attachments, metadata, content) OVERRIDING SYSTEM VALUE VALUES ('4', '12', '1769853627007', '1', 'u00011', 'key-27', 'message-27', 'text/plain', NULL, NULL, NULL, NULL, NULL, 'hello');
INSERT INTO messages (chat, sequence, created_at, members_version, sender_id, client_message_id, message_id, content_type, kind, life, mentions, attachments, metadata, content) OVERRIDING SYSTEM VALUE VALUES ('4', '13', '1769853628007', '1', 'u00012', 'key-28', 'message-28', 'text/plain', NULL, NULL, NULL, NULL, NULL, 'hello');
INSERT INTO messages (chat, sequence, created_at, members_version, sender_id, client_message_id, message_id, content_type, kind, life, mentions, attachments, metadata, content) OVERRIDING SYSTEM VALUE VALUES ('4', '14', '1769853629007', '1', 'u00013', 'key-29', 'message-29', 'text/plain', NULL, NULL, NULL, NULL, NULL, 'hello');
INSERT INTO messages (chat, sequence, created_at, members_version, sender_id, client_message_id, message_id, content_type, kind, life, mentions, attachments, metadata, content) OVERRIDING SYSTEM VALUE VALUES ('4', '15', '1769853630007', '1', 'u00014', 'key-30', 'message-30', 'text/plain', NULL, NULL, NULL, NULL, NULL, 'hello');
INSERT INTO messages (chat, sequence, created_at, members_version, sender_id, client_message_id, message_id, content_type, kind, life, mentions, attachments, metadata, content) OVERRIDING SYSTEM VALUE VALUES ('4', '16', '1769853631007', '1', 'u00003', 'key-31', 'message-31', 'text/plain', NULL, NULL, NULL, NULL, NULL, 'hello');
INSERT INTO messages (chat, sequence, created_at, members_version, sender_id, client_message_id, message_id, content_type, kind, life, mentions, attachments, metadata, content) OVERRIDING SYSTEM VALUE VALUES ('4', '17', '1769853632007', '1', 'u00004', 'key-32', 'message-32', 'text/plain', NULL, NULL, NULL, NULL, NULL, 'hello');
INSERT INTO messages (chat, sequence, created_at, members_version, sender_id, client_message_id, message_id, content_type, kind, life, mentions, attachments, metadata, content) OVERRIDING SYSTEM VALUE VALUES ('4', '18', '1769853633007', '1', 'u00005', 'key-33', 'message-33', 'text/plain', NULL, NULL, NULL, NULL, NULL, 'hello');
INSERT INTO messages (chat, sequence, created_at, members_version, sender_id, client_message_id, message_id, content_type, kind, life, mentions, attachments, metadata, content) OVERRIDING SYSTEM VALUE VALUES ('4', '2', '1769853617007', '1', 'u00001', 'key-17', 'message-17', 'text/plain', NULL, NULL, NULL, NULL, NULL, 'hello');
INSERT INTO messages (chat, sequence, created_at, members_version, sender_id, client_message_id, message_id, content_type, kind, life, mentions, attachments, metadata, content) OVERRIDING SYSTEM VALUE VALUES ('4', '3', '1769853618007', '1', 'u00002', 'key-18', 'message-18', 'text/plain', NULL, NULL, NULL, NULL, NULL, 'hello');
INSERT INTO messages (chat, sequence, created_at, members_version, sender_id, client_message_id, message_id, content_type, kind, life, mentions, attachments, metadata, content) OVERRIDING SYSTEM VALUE VALUES ('4', '4', '1769853619007', '1', 'u00003', 'key-19', 'message-19', 'text/plain', NULL, NULL, NULL, NULL, NULL, 'hello');
INSERT INTO messages (chat, sequence, created_at, members_version, sender_id, client_message_id, message_id, content_type, kind, life, mentions, attachments, metadata, content) OVERRIDING SYSTEM VALUE VALUES ('4', '5', '1769853620007', '1', 'u00004', 'key-20', 'message-20', 'text/plain', NULL, NULL, NULL, NULL, NULL, 'hello');
INSERT INTO messages (chat, sequence, created_at, members_version, sender_id, client_message_id, message_id, content_type, kind, life, mentions, attachments, metadata, content) OVERRIDING SYSTEM VALUE VALUES ('4', '6', '1769853621007', '1', 'u00005', 'key-21', 'message-21', 'text/plain', NULL, NULL, NULL, NULL, NULL, 'hello');
INSERT INTO messages (chat, sequence, created_at, members_version, sender_id, client_message_id, message_id, content_type, kind, life, mentions, attachments, metadata, content) OVERRIDING SYSTEM VALUE VALUES ('4', '7', '1769853622007', '1', 'u00006', 'key-22', 'message-22', 'text/plain', NULL, NULL, NULL, NULL, NULL, 'hello');
INSERT INTO messages (chat, sequence, created_at, members_version, sender_id, client_message_id, message_id, content_type, kind, life, mentions, attachments, metadata, content) OVERRIDING SYSTEM VALUE VALUES ('4', '8', '1769853623007', '1', 'u00007', 'key-23', 'message-23', 'text/plain', NULL, NULL, NULL, NULL, NULL, 'hello');
INSERT INTO messages (chat, sequence, created_at, members_version, sender_id, client_message_id, message_id, content_type, kind, life, mentions, attachments, metadata, content) OVERRIDING SYSTEM VALUE VALUES ('4', '9', '1769853624007', '1', 'u00008', 'key-24', 'message-24', 'text/plain', NULL, NULL, NULL, NULL, NULL, 'hello');
INSERT INTO messages (chat, sequence, created_at, members_version, sender_id, client_message_id, message_id, content_type, kind, life, mentions, attachments, metadata, content) OVERRIDING SYSTEM VALUE VALUES ('5', '1', '1769853634007', '1', 'u00000', 'key-34', 'message-34', 'text/plain', NULL, NULL, NULL, NULL, NULL, 'hello');
INSERT INTO messages (chat, sequence, created_at, members_version, sender_id, client_message_id, message_id, content_type, kind, life, mentions, attachments, metadata, content) OVERRIDING SYSTEM VALUE VALUES ('5', '2', '1769853635007', '1', 'u00000', 'key-35', 'message-35', 'text/plain', NULL, NULL, NULL, NULL, NULL, 'hello');
INSERT INTO messages (chat, sequence, created_at, members_version, sender_id, client_message_id, message_id, content_type, kind, life, mentions, attachments, metadata, content) OVERRIDING SYSTEM VALUE VALUES ('5', '3', '1769853636007', '1', 'u00000', 'key-36', 'message-36', 'text/plain', NULL, NULL, NULL, NULL, NULL, 'hello');
INSERT INTO messages (chat, sequence, created_at, members_version, sender_id, client_message_id, message_id, content_type, kind, life, mentions, attachments, metadata, content) OVERRIDING SYSTEM VALUE VALUES ('7', '1', '1769853637007', '1', 'dora', 'key-37', 'message-37', 'text/plain', NULL, NULL, NULL, NULL, NULL, 'hello');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('anna', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('ben', 'joined', '4');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('cleo', 'group', '5');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('dora', 'group', '5');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00000', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00001', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00002', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00003', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00004', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00005', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00006', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00007', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00008', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00009', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00010', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00011', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00012', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00013', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00014', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00015', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00016', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00017', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00018', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00019', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00020', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00021', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00022', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00023', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00024', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00025', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00026', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00027', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00028', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00029', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00030', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00031', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00032', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00033', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00034', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00035', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00036', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00037', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00038', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00039', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00040', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00041', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00042', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00043', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00044', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00045', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00046', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00047', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00048', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00049', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00050', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00051', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00052', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00053', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00054', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00055', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00056', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00057', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00058', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00059', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00060', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00061', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00062', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00063', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00064', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00065', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00066', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00067', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00068', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00069', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00070', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00071', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00072', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00073', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00074', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00075', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00076', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00077', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00078', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00079', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00080', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00081', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00082', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00083', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00084', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00085', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00086', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00087', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00088', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00089', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00090', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00091', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00092', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00093', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00094', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00095', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00096', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00097', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00098', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00099', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00100', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00101', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00102', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00103', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00104', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00105', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00106', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00107', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00108', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00109', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00110', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00111', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00112', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00113', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00114', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00115', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00116', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00117', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00118', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00119', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00120', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00121', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00122', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00123', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00124', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00125', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00126', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00127', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00128', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00129', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00130', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00131', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00132', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00133', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00134', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00135', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00136', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00137', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00138', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00139', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00140', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00141', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00142', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00143', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00144', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00145', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00146', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00147', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00148', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00149', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00150', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00151', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00152', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00153', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00154', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00155', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00156', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00157', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00158', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00159', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00160', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00161', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00162', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00163', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00164', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00165', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00166', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00167', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00168', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00169', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00170', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00171', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00172', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00173', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00174', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00175', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00176', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00177', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00178', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00179', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00180', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00181', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00182', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00183', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00184', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00185', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00186', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00187', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00188', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00189', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00190', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00191', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00192', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00193', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00194', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00195', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00196', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00197', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00198', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00199', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00200', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00201', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00202', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00203', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00204', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00205', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00206', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00207', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00208', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00209', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00210', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00211', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00212', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00213', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00214', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00215', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00216', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00217', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00218', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00219', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00220', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00221', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00222', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00223', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00224', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00225', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00226', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00227', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00228', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00229', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00230', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00231', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00232', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00233', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00234', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00235', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00236', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00237', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00238', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00239', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00240', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00241', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00242', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00243', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00244', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00245', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00246', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00247', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00248', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00249', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00250', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00251', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00252', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00253', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00254', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00255', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00256', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00257', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00258', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00259', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00260', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00261', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00262', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00263', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00264', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00265', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00266', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00267', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00268', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00269', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00270', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00271', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00272', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00273', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00274', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00275', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00276', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00277', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00278', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00279', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00280', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00281', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00282', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00283', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00284', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00285', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00286', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00287', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00288', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00289', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00290', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00291', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00292', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00293', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00294', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00295', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00296', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00297', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00298', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00299', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00300', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00301', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00302', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00303', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00304', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00305', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00306', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00307', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00308', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00309', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00310', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00311', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00312', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00313', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00314', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00315', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00316', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00317', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00318', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00319', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00320', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00321', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00322', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00323', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00324', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00325', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00326', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00327', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00328', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00329', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00330', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00331', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00332', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00333', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00334', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00335', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00336', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00337', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00338', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00339', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00340', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00341', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00342', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00343', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00344', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00345', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00346', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00347', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00348', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00349', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00350', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00351', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00352', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00353', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00354', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00355', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00356', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00357', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00358', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00359', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00360', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00361', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00362', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00363', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00364', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00365', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00366', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00367', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00368', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00369', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00370', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00371', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00372', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00373', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00374', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00375', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00376', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00377', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00378', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00379', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00380', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00381', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00382', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00383', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00384', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00385', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00386', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00387', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00388', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00389', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00390', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00391', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00392', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00393', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00394', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00395', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00396', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00397', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00398', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00399', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00400', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00401', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00402', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00403', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00404', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00405', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00406', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00407', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00408', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00409', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00410', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00411', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00412', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00413', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00414', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00415', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00416', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00417', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00418', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00419', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00420', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00421', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00422', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00423', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00424', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00425', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00426', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00427', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00428', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00429', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00430', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00431', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00432', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00433', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00434', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00435', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00436', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00437', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00438', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00439', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00440', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00441', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00442', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00443', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00444', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00445', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00446', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00447', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00448', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00449', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00450', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00451', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00452', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00453', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00454', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00455', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00456', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00457', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00458', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00459', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00460', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00461', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00462', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00463', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00464', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00465', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00466', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00467', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00468', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00469', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00470', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00471', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00472', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00473', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00474', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00475', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00476', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00477', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00478', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00479', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00480', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00481', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00482', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00483', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00484', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00485', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00486', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00487', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00488', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00489', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00490', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00491', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00492', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00493', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00494', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00495', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00496', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00497', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00498', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00499', 'big', '0');
INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) OVERRIDING SYSTEM VALUE VALUES ('u00500', 'big', '0');
INSERT INTO schema_compatible (version) OVERRIDING SYSTEM VALUE VALUES ('1');
INSERT INTO schema_migrations (version, dirty) OVERRIDING SYSTEM VALUE VALUES ('1', 'false');
INSERT INTO senders (chat, user_id, sent, last_sent) OVERRIDING SYSTEM VALUE VALUES ('2', 'anna', '3', '6');
INSERT INTO senders (chat, user_id, sent, last_sent) OVERRIDING SYSTEM VALUE VALUES ('2', 'ben', '3', '8');
INSERT INTO senders (chat, user_id, sent, last_sent) OVERRIDING SYSTEM VALUE VALUES ('2', 'dora', '1', '5');
INSERT INTO senders (chat, user_id, sent, last_sent) OVERRIDING SYSTEM VALUE VALUES ('3', 'anna', '1', '5');
INSERT INTO senders (chat, user_id, sent, last_sent) OVERRIDING SYSTEM VALUE VALUES ('3', 'ben', '4', '6');
INSERT INTO senders (chat, user_id, sent, last_sent) OVERRIDING SYSTEM VALUE VALUES ('3', 'cleo', '1', '4');
INSERT INTO senders (chat, user_id, sent, last_sent) OVERRIDING SYSTEM VALUE VALUES ('4', 'u00000', '1', '1');
INSERT INTO senders (chat, user_id, sent, last_sent) OVERRIDING SYSTEM VALUE VALUES ('4', 'u00001', '1', '2');
INSERT INTO senders (chat, user_id, sent, last_sent) OVERRIDING SYSTEM VALUE VALUES ('4', 'u00002', '1', '3');
INSERT INTO senders (chat, user_id, sent, last_sent) OVERRIDING SYSTEM VALUE VALUES ('4', 'u00003', '2', '16');
INSERT INTO senders (chat, user_id, sent, last_sent) OVERRIDING SYSTEM VALUE VALUES ('4', 'u00004', '2', '17');
INSERT INTO senders (chat, user_id, sent, last_sent) OVERRIDING SYSTEM VALUE VALUES ('4', 'u00005', '2', '18');
INSERT INTO senders (chat, user_id, sent, last_sent) OVERRIDING SYSTEM VALUE VALUES ('4', 'u00006', '1', '7');
INSERT INTO senders (chat, user_id, sent, last_sent) OVERRIDING SYSTEM VALUE VALUES ('4', 'u00007', '1', '8');
INSERT INTO senders (chat, user_id, sent, last_sent) OVERRIDING SYSTEM VALUE VALUES ('4', 'u00008', '1', '9');
INSERT INTO senders (chat, user_id, sent, last_sent) OVERRIDING SYSTEM VALUE VALUES ('4', 'u00009', '1', '10');
INSERT INTO senders (chat, user_id, sent, last_sent) OVERRIDING SYSTEM VALUE VALUES ('4', 'u00010', '1', '11');
INSERT INTO senders (chat, user_id, sent, last_sent) OVERRIDING SYSTEM VALUE VALUES ('4', 'u00011', '1', '12');
INSERT INTO senders (chat, user_id, sent, last_sent) OVERRIDING SYSTEM VALUE VALUES ('4', 'u00012', '1', '13');
INSERT INTO senders (chat, user_id, sent, last_sent) OVERRIDING SYSTEM VALUE VALUES ('4', 'u00013', '1', '14');
INSERT INTO senders (chat, user_id, sent, last_sent) OVERRIDING SYSTEM VALUE VALUES ('4', 'u00014', '1', '15');
INSERT INTO senders (chat, user_id, sent, last_sent) OVERRIDING SYSTEM VALUE VALUES ('5', 'u00000', '3', '3');
INSERT INTO senders (chat, user_id, sent, last_sent) OVERRIDING SYSTEM VALUE VALUES ('7', 'dora', '1', '1');
INSERT INTO uncounted (chat, sequence, ordinal) OVERRIDING SYSTEM VALUE VALUES ('2', '4', '1');
SELECT setval(pg_get_serial_sequence('chats', 'key'), (SELECT max(key) FROM chats));
