ALTER TABLE chats
    DROP COLUMN hold,
    DROP COLUMN keep_days,
    DROP COLUMN deleted_at,
    DROP COLUMN state;
