-- What outlets have received (storage.Outbox), and documents of the programs (storage.Documents).

-- A chat has a backlog if outbox_shard is not NULL. The other columns say from where on its news
-- may be undelivered. Chats that exist already have a backlog from their beginning, and so have
-- those that an older program makes.
ALTER TABLE chats ADD COLUMN outbox_shard    INTEGER DEFAULT 0;           -- storage.ShardOf
ALTER TABLE chats ADD COLUMN outbox_sequence INTEGER NOT NULL DEFAULT 0;
ALTER TABLE chats ADD COLUMN outbox_members  INTEGER NOT NULL DEFAULT 0;  -- of members_version
ALTER TABLE chats ADD COLUMN outbox_version  INTEGER NOT NULL DEFAULT 0;
ALTER TABLE chats ADD COLUMN outbox_split    INTEGER NOT NULL DEFAULT 0;  -- single outlets may wait

CREATE INDEX chats_in_outbox ON chats (outbox_shard, id) WHERE outbox_shard IS NOT NULL;

-- The members' version of the chat with the last change of the member.
ALTER TABLE members ADD COLUMN version INTEGER NOT NULL DEFAULT 1;

-- Members who have not changed since the chat was created are not in it.
CREATE INDEX members_by_version ON members (chat, version) WHERE version > 1;

-- The backlogs of single outlets.
CREATE TABLE outlet_backlogs (
    outlet   TEXT    NOT NULL,
    shard    INTEGER NOT NULL,
    chat_id  TEXT    NOT NULL,
    sequence INTEGER NOT NULL,
    members  INTEGER NOT NULL,
    version  INTEGER NOT NULL,
    stamp    TEXT    NOT NULL,  -- another one after each Rewind
    PRIMARY KEY (outlet, shard, chat_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE documents (
    kind    TEXT    NOT NULL,
    name    TEXT    NOT NULL,
    version INTEGER NOT NULL,
    value   TEXT    NOT NULL,
    PRIMARY KEY (kind, name)
) STRICT, WITHOUT ROWID;
