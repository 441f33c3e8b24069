DROP TABLE documents;
DROP TABLE outlet_backlogs;
DROP INDEX members_by_version;
ALTER TABLE members DROP COLUMN version;
DROP INDEX chats_in_outbox;
ALTER TABLE chats
    DROP COLUMN outbox_split,
    DROP COLUMN outbox_version,
    DROP COLUMN outbox_members,
    DROP COLUMN outbox_sequence,
    DROP COLUMN outbox_shard;
