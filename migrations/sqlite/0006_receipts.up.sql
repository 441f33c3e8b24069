-- What a user has read and hides from others, from this sequence on, and read_at as it was then.
ALTER TABLE delivery_state ADD COLUMN hidden_from INTEGER NOT NULL DEFAULT 0;  -- 0: nothing
ALTER TABLE delivery_state ADD COLUMN shown_at    INTEGER NOT NULL DEFAULT 0;

-- Who hides what they read: in all chats, or in one. Without a row, a user shows it.
CREATE TABLE receipts (
    user_id TEXT    NOT NULL,
    chat    INTEGER NOT NULL,  -- 0: in all chats
    hidden  INTEGER NOT NULL,
    PRIMARY KEY (user_id, chat)
) STRICT, WITHOUT ROWID;
