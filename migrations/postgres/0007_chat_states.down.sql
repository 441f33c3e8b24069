ALTER TABLE chats
    DROP COLUMN hold,
    DROP COLUMN keep_days,
    DROP COLUMN state;
