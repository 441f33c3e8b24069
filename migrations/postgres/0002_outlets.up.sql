-- What outlets have received (storage.Outbox), and documents of the programs (storage.Documents).

-- A chat has a backlog if outbox_shard is not NULL. The other columns say from where on its news
-- may be undelivered. Chats that exist already have a backlog from their beginning, and so have
-- those that an older program makes. Constant defaults rewrite no table.
ALTER TABLE chats
    ADD COLUMN outbox_shard    smallint DEFAULT 0,                -- storage.ShardOf
    ADD COLUMN outbox_sequence bigint  NOT NULL DEFAULT 0,
    ADD COLUMN outbox_members  bigint  NOT NULL DEFAULT 0,        -- of members_version
    ADD COLUMN outbox_version  bigint  NOT NULL DEFAULT 0,
    ADD COLUMN outbox_split    boolean NOT NULL DEFAULT false;    -- single outlets may wait

CREATE INDEX chats_in_outbox ON chats (outbox_shard, id) WHERE outbox_shard IS NOT NULL;

-- The members' version of the chat with the last change of the member.
ALTER TABLE members ADD COLUMN version bigint NOT NULL DEFAULT 1;

-- Members who have not changed since the chat was created are not in it. So it costs nothing at the
-- creation, and no other statement is planned with it.
CREATE INDEX members_by_version ON members (chat, version) WHERE version > 1;

-- The backlogs of single outlets.
CREATE TABLE outlet_backlogs (
    outlet   text     COLLATE "C" NOT NULL,
    shard    smallint NOT NULL,
    chat_id  text     COLLATE "C" NOT NULL,
    sequence bigint   NOT NULL,
    members  bigint   NOT NULL,
    version  bigint   NOT NULL,
    stamp    text     NOT NULL,  -- another one after each Rewind
    PRIMARY KEY (outlet, shard, chat_id)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

CREATE TABLE documents (
    kind    text   COLLATE "C" NOT NULL,
    name    text   COLLATE "C" NOT NULL,
    version bigint NOT NULL,
    value   text   NOT NULL,
    PRIMARY KEY (kind, name)
);
